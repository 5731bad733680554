#include <algorithm>
#include <stdexcept>

#include "texts.hpp"
#include "umpteen/term_matcher.hpp"

namespace umpteen {

namespace {

static_assert(sizeof(TermMatch) == 7 * sizeof(std::int32_t), "a match is a row of seven numbers");

nb::tuple read_words_from_python(const nb::list& texts, const std::optional<Vector<std::uint32_t>>& word_table,
                                 int threads, const CancelToken* token) {
  const std::vector<TextView> views = view_texts(texts);
  const WordTable table = view_word_table(word_table);
  WordStream stream;
  {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    stream = read_words(views, table, threads, control);
  }
  nb::bytes words(stream.words.bytes_.data(), stream.words.bytes_.size());
  return nb::make_tuple(words, to_numpy(std::move(stream.words.ends_)), to_numpy(std::move(stream.tokens)),
                        to_numpy(std::move(stream.sentence_ends)), to_numpy(std::move(stream.text_ends)));
}

void check_ends(const Vector<std::int64_t>& ends, std::size_t last, const char* what) {
  std::int64_t before = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (ends.data()[i] < before) throw std::invalid_argument(std::string("the ends of ") + what + " must not fall");
    before = ends.data()[i];
  }
  if (before != static_cast<std::int64_t>(last))
    throw std::invalid_argument(std::string("the last end of ") + what + " must be " + std::to_string(last) +
                                ", but is " + std::to_string(before));
}

void check_numbers(const std::int32_t* numbers, std::size_t n, std::int32_t least, std::size_t limit,
                   const char* what) {
  for (std::size_t i = 0; i < n; ++i)
    if (numbers[i] < least || (numbers[i] >= 0 && static_cast<std::size_t>(numbers[i]) >= limit))
      throw std::out_of_range(std::string(what) + " must be below " + std::to_string(limit) + ", but one is " +
                              std::to_string(numbers[i]));
}

/// The terms of a vocabulary, usually mapped from files, checked once.
class Terms {
 public:
  Terms(const Vector<std::int64_t>& ends, const Vector<std::int32_t>& stems, const Vector<std::int64_t>& key_ends,
        const Vector<std::int32_t>& key_terms)
      : owner_(nb::make_tuple(ends, stems, key_ends, key_terms)) {
    check_ends(ends, stems.size(), "terms");
    check_ends(key_ends, key_terms.size(), "keys");
    for (std::size_t i = 0; i < ends.size(); ++i)
      if (ends.data()[i] == (i == 0 ? 0 : ends.data()[i - 1])) throw std::invalid_argument("a term must have a stem");
    check_numbers(stems.data(), stems.size(), 0, key_ends.size(), "stems");
    check_numbers(key_terms.data(), key_terms.size(), 0, ends.size(), "terms");
    index_ = {
        .ends = ends.data(),
        .stems = stems.data(),
        .n_terms = static_cast<std::int64_t>(ends.size()),
        .key_ends = key_ends.data(),
        .key_terms = key_terms.data(),
        .n_stems = static_cast<std::int64_t>(key_ends.size()),
    };
  }

  nb::tuple match(const Vector<std::int32_t>& tokens, const Vector<std::int64_t>& sentence_ends,
                  const Vector<std::int64_t>& text_ends, const Matrix<std::int32_t>& stem_of, int threads,
                  const CancelToken* token) const {
    check_ends(sentence_ends, tokens.size(), "sentences");
    check_ends(text_ends, sentence_ends.size(), "texts");
    check_numbers(tokens.data(), tokens.size(), 0, stem_of.shape(0), "words");
    check_numbers(stem_of.data(), stem_of.size(), -1, static_cast<std::size_t>(index_.n_stems), "stems");
    if (tokens.size() > INT32_MAX) throw std::length_error("there must be at most 2147483647 words at a time");
    const StemmedTexts texts{
        .tokens = tokens.data(),
        .sentence_ends = sentence_ends.data(),
        .text_ends = text_ends.data(),
        .n_texts = static_cast<std::int64_t>(text_ends.size()),
        .stem_of = stem_of.data(),
        .n_languages = static_cast<std::int64_t>(stem_of.shape(1)),
    };
    TermMatches found;
    {
      Control control = make_control(token);
      const nb::gil_scoped_release release;
      found = match_terms(texts, index_, threads, control);
    }
    const auto n_matches = static_cast<std::int64_t>(found.matches.size());
    auto rows = make_array<std::int32_t>(7 * n_matches);
    const auto* numbers = reinterpret_cast<const std::int32_t*>(found.matches.data());
    std::copy(numbers, numbers + 7 * n_matches, rows.get());
    return nb::make_tuple(to_numpy(std::move(found.text_ends)), umpteen::to_numpy(std::move(rows), n_matches, 7));
  }

 private:
  nb::object owner_;
  TermIndex index_;
};

}  // namespace

void register_terms(nb::module_& m) {
  m.def(
      "read_words", &read_words_from_python, nb::arg("texts"), nb::arg("word_table").noconvert().none(),
      nb::arg("threads"), nb::arg("token") = nb::none(),
      "The words of texts: (bytes, ends) of the distinct ones, their numbers in the order of the texts, the ends of "
      "sentences in words, and of texts in sentences. A str must be ASCII; bytes are UTF-8 in lower case.");
  nb::class_<Terms>(m, "Terms", "Terms as runs of stems, with the terms that each stem finds.")
      .def(nb::init<const Vector<std::int64_t>&, const Vector<std::int32_t>&, const Vector<std::int64_t>&,
                    const Vector<std::int32_t>&>(),
           nb::arg("ends").noconvert(), nb::arg("stems").noconvert(), nb::arg("key_ends").noconvert(),
           nb::arg("key_terms").noconvert())
      .def("match", &Terms::match, nb::arg("tokens").noconvert(), nb::arg("sentence_ends").noconvert(),
           nb::arg("text_ends").noconvert(), nb::arg("stem_of").noconvert(), nb::arg("threads"),
           nb::arg("token") = nb::none(),
           "The ends of each text's matches, and for each the term, in how many sentences it is, how many of them "
           "have a longer term around it, in how many its stems stand in order, its first and its last place, and "
           "the fewest words between its own.");
}

}  // namespace umpteen
