#include <nanobind/stl/string.h>

#include <bit>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "texts.hpp"

namespace umpteen {

namespace {

Weighting make_weighting(bool sublinear, const std::optional<Vector<double>>& idf, const std::string& norm,
                         std::int64_t n_columns) {
  if (idf && static_cast<std::int64_t>(idf->size()) != n_columns)
    throw std::invalid_argument("there must be one idf for each of " + std::to_string(n_columns) +
                                " columns, but there are " + std::to_string(idf->size()));
  using Norm = Weighting::Norm;
  const Norm kind = norm == "l2" ? Norm::l2 : norm == "l1" ? Norm::l1 : Norm::none;
  return {.sublinear = sublinear, .idf = idf ? idf->data() : nullptr, .norm = kind};
}

/// The rules and what they point to.
struct Rules {
  TermRules rules;
  TermList stop_words;

  Rules(const std::string& unit, bool lowercase, bool words_given, std::int64_t min_length, std::int64_t kept_length,
        std::int64_t min_n, std::int64_t max_n, std::int64_t n_hashed, const nb::list& stop, bool all_scripts) {
    if (kept_length < 0 || min_n < 1 || max_n < min_n || n_hashed < 0 || n_hashed > INT32_MAX)
      throw std::invalid_argument("rules for terms are out of range");
    for (const TextView& word : view_texts(stop)) stop_words.find_or_add(word.bytes, hash_term(word.bytes));
    rules = {
        .unit = unit == "char"      ? TermUnit::character
                : unit == "char_wb" ? TermUnit::character_of_word
                                    : TermUnit::word,
        .lowercase = lowercase,
        .words_given = words_given,
        .all_scripts = all_scripts,
        .min_length = min_length,
        .kept_length = kept_length,
        .min_n = min_n,
        .max_n = max_n,
        .stop_words = stop_words.view(),
        .n_hashed = n_hashed,
    };
  }
};

nb::tuple rows_to_python(WeightedRows&& rows) {
  return nb::make_tuple(to_numpy(std::move(rows.indptr)), to_numpy(std::move(rows.indices)),
                        to_numpy(std::move(rows.values)));
}

class Counter {
 public:
  Counter(const Rules& rules, bool keep_rows)
      : rules_(rules), counter_(view_rules(), keep_rows), keep_rows_(keep_rows) {}

  void add(const nb::list& texts, const std::optional<Vector<std::uint32_t>>& word_table, int threads,
           const CancelToken* token) {
    if (finished_) throw std::invalid_argument("counting is finished");
    const std::vector<TextView> views = view_texts(texts);
    const WordTable table = view_word_table(word_table, rules_.rules.all_scripts ? 3 : 1);
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    counter_.add(views, table, threads, control);
  }

  nb::tuple finish(double min_rows, double max_rows, std::int64_t max_features, int threads,
                   const CancelToken* token) {
    if (finished_) throw std::invalid_argument("counting is finished");
    finished_ = true;
    TermCounter::Columns columns;
    {
      Control control = make_control(token);
      const nb::gil_scoped_release release;
      const TermLimits limits{.min_rows = min_rows, .max_rows = max_rows, .max_features = max_features};
      columns = counter_.finish(limits, threads, control);
    }
    n_columns_ = static_cast<std::int64_t>(columns.n_rows.size());
    const auto n_slots = static_cast<std::int64_t>(columns.terms.slots_.size());
    auto slots = make_array<std::uint32_t>(2 * n_slots);
    for (std::int64_t i = 0; i < n_slots; ++i) {
      slots[2 * i] = columns.terms.slots_[i].hash;
      slots[2 * i + 1] = columns.terms.slots_[i].id_plus_one;
    }
    auto bytes = make_array<std::uint8_t>(static_cast<std::int64_t>(columns.terms.bytes_.size()));
    std::copy(columns.terms.bytes_.begin(), columns.terms.bytes_.end(), bytes.get());
    return nb::make_tuple(umpteen::to_numpy(std::move(bytes), static_cast<std::int64_t>(columns.terms.bytes_.size())),
                          to_numpy(std::move(columns.terms.ends_)), umpteen::to_numpy(std::move(slots), n_slots, 2),
                          to_numpy(std::move(columns.n_rows)));
  }

  nb::tuple rows(bool sublinear, const std::optional<Vector<double>>& idf, const std::string& norm, int threads,
                 const CancelToken* token) {
    if (!finished_ || !keep_rows_) throw std::invalid_argument("there are no rows, not yet or not any more");
    keep_rows_ = false;
    const Weighting weighting = make_weighting(sublinear, idf, norm, n_columns_);
    WeightedRows rows;
    {
      Control control = make_control(token);
      const nb::gil_scoped_release release;
      rows = counter_.rows(weighting, threads, control);
    }
    return rows_to_python(std::move(rows));
  }

  std::int64_t n_rows() const { return counter_.n_rows(); }

 private:
  TermRules view_rules() {
    TermRules rules = rules_.rules;
    rules.stop_words = rules_.stop_words.view();
    return rules;
  }

  Rules rules_;  // a copy, so that its stop words live as long
  TermCounter counter_;
  bool keep_rows_;
  bool finished_ = false;
  std::int64_t n_columns_ = 0;
};

/// A vocabulary, usually mapped from files, checked once.
class Vectorizer {
 public:
  Vectorizer(const Rules& rules, const Vector<std::uint8_t>& bytes, const Vector<std::int64_t>& ends,
             const Matrix<std::uint32_t>& slots)
      : rules_(rules), owner_(nb::make_tuple(bytes, ends, slots)) {
    rules_.rules.stop_words = rules_.stop_words.view();
    const auto n_terms = static_cast<std::int64_t>(ends.size());
    std::int64_t last = 0;
    for (std::int64_t i = 0; i < n_terms; ++i) {
      if (ends.data()[i] < last) throw std::invalid_argument("the offsets of terms must not fall");
      last = ends.data()[i];
    }
    if (last != static_cast<std::int64_t>(bytes.size()) || n_terms > INT32_MAX)
      throw std::invalid_argument("the last offset of terms must be the number of their bytes");
    if (slots.shape(1) != 2 || !std::has_single_bit(slots.shape(0)))
      throw std::invalid_argument("the slots of terms must be pairs, and their number a power of two");
    terms_ = {
        .bytes = reinterpret_cast<const char*>(bytes.data()),
        .ends = ends.data(),
        .n_terms = n_terms,
        .slots = reinterpret_cast<const TermSlot*>(slots.data()),
        .n_slots = static_cast<std::int64_t>(slots.shape(0)),
    };
  }

  nb::tuple transform(const nb::list& texts, const std::optional<Vector<std::uint32_t>>& word_table, bool sublinear,
                      const std::optional<Vector<double>>& idf, const std::string& norm, int threads,
                      const CancelToken* token) const {
    const std::vector<TextView> views = view_texts(texts);
    const WordTable table = view_word_table(word_table, rules_.rules.all_scripts ? 3 : 1);
    const Weighting weighting = make_weighting(sublinear, idf, norm, n_columns());
    WeightedRows rows;
    {
      Control control = make_control(token);
      const nb::gil_scoped_release release;
      rows = weigh_texts(views, table, rules_.rules, terms_, weighting, threads, control);
    }
    auto n_terms = to_numpy(std::move(rows.n_terms));
    auto n_unknown = to_numpy(std::move(rows.n_unknown));
    return nb::make_tuple(rows_to_python(std::move(rows)), n_unknown, n_terms);
  }

  /// The column of each term, or -1.
  NumpyVector<std::int32_t> find(const nb::list& terms) const {
    std::vector<std::int32_t> out;
    for (const TextView& term : view_texts(terms)) out.push_back(find_column(term.bytes, rules_.rules, terms_));
    return to_numpy(std::move(out));
  }

  std::int64_t n_columns() const { return rules_.rules.n_hashed > 0 ? rules_.rules.n_hashed : terms_.n_terms; }

 private:
  Rules rules_;
  TermView terms_;
  nb::object owner_;
};

}  // namespace

void register_tfidf(nb::module_& m) {
  nb::class_<Rules>(m, "TermRules", "How a text becomes terms; see tfidf.hpp.")
      .def(nb::init<const std::string&, bool, bool, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                    std::int64_t, const nb::list&, bool>(),
           nb::arg("unit"), nb::arg("lowercase"), nb::arg("words_given"), nb::arg("min_length"),
           nb::arg("kept_length"), nb::arg("min_n"), nb::arg("max_n"), nb::arg("n_hashed"), nb::arg("stop_words"),
           nb::arg("all_scripts") = false);
  nb::class_<Counter>(m, "TermCounter", "Counts the terms of texts that come batch by batch.")
      .def(nb::init<const Rules&, bool>(), nb::arg("rules"), nb::arg("keep_rows"))
      .def("add", &Counter::add, nb::arg("texts"), nb::arg("word_table").noconvert().none(), nb::arg("threads"),
           nb::arg("token") = nb::none(), "Counts texts: ASCII str, or UTF-8 bytes that are ready.")
      .def("finish", &Counter::finish, nb::arg("min_rows"), nb::arg("max_rows"), nb::arg("max_features"),
           nb::arg("threads"), nb::arg("token") = nb::none(), "(bytes, ends, slots, n_rows) of the terms kept.")
      .def("rows", &Counter::rows, nb::arg("sublinear"), nb::arg("idf").noconvert().none(), nb::arg("norm"),
           nb::arg("threads"), nb::arg("token") = nb::none(), "(indptr, indices, values); only once.")
      .def_prop_ro("n_rows", &Counter::n_rows);
  nb::class_<Vectorizer>(m, "TextVectorizer", "Texts to rows over the columns of a vocabulary.")
      .def(nb::init<const Rules&, const Vector<std::uint8_t>&, const Vector<std::int64_t>&,
                    const Matrix<std::uint32_t>&>(),
           nb::arg("rules"), nb::arg("bytes").noconvert(), nb::arg("ends").noconvert(), nb::arg("slots").noconvert())
      .def("transform", &Vectorizer::transform, nb::arg("texts"), nb::arg("word_table").noconvert().none(),
           nb::arg("sublinear"), nb::arg("idf").noconvert().none(), nb::arg("norm"), nb::arg("threads"),
           nb::arg("token") = nb::none(), "((indptr, indices, values), n_unknown, n_terms)")
      .def("find", &Vectorizer::find, nb::arg("terms"), "The column of each term, or -1.")
      .def_prop_ro("n_columns", &Vectorizer::n_columns);
}

}  // namespace umpteen
