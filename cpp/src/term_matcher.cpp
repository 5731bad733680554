#include "umpteen/term_matcher.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <stdexcept>

namespace umpteen {

namespace {

constexpr std::int64_t kBlockTokens = 1 << 15;

using Stems = std::span<const std::int32_t>;

Stems stems_of(const TermIndex& index, std::int64_t term) {
  const std::int64_t begin = term == 0 ? 0 : index.ends[term - 1];
  return {index.stems + begin, static_cast<std::size_t>(index.ends[term] - begin)};
}

bool contains(Stems stems, std::int32_t stem) { return std::find(stems.begin(), stems.end(), stem) != stems.end(); }

bool contains_all(Stems longer, Stems shorter) {
  return std::all_of(shorter.begin(), shorter.end(), [&](std::int32_t stem) { return contains(longer, stem); });
}

struct Place {
  std::int64_t begin = 0;
  std::int64_t gap = 0;
  bool exact = false;
};

/// Where a sentence has the stems of a term, all of which it has.
class Locator {
 public:
  Place locate(Stems sentence, Stems term) {
    const auto found = std::search(sentence.begin(), sentence.end(), term.begin(), term.end());
    if (found != sentence.end()) return {found - sentence.begin(), 0, true};
    return find_shortest_run(sentence, term);
  }

 private:
  Place find_shortest_run(Stems sentence, Stems term) {
    last_.assign(term.size(), -1);
    std::int64_t best_begin = 0;
    std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(sentence.size()); ++i) {
      bool is_new = false;
      for (std::size_t k = 0; k < term.size(); ++k)
        if (term[k] == sentence[static_cast<std::size_t>(i)]) {
          last_[k] = i;
          is_new = true;
        }
      if (!is_new) continue;
      const std::int64_t begin = *std::min_element(last_.begin(), last_.end());
      if (begin < 0 || i + 1 - begin >= shortest) continue;
      best_begin = begin;
      shortest = i + 1 - begin;
    }
    // A term that repeats a word may be found in fewer words than it has.
    return {best_begin, std::max<std::int64_t>(0, shortest - static_cast<std::int64_t>(term.size())), false};
  }

  std::vector<std::int64_t> last_;
};

/// Matches one text after the other. What it keeps between texts is room, not content.
class Matcher {
 public:
  Matcher(const StemmedTexts& texts, const TermIndex& index)
      : texts_(texts),
        index_(index),
        seen_(static_cast<std::size_t>(index.n_stems), 0),
        first_found_(static_cast<std::size_t>(index.n_stems), -1),
        match_of_(static_cast<std::size_t>(index.n_terms), -1) {}

  void match(std::int64_t text, std::vector<TermMatch>& out) {
    const std::int64_t first = text == 0 ? 0 : texts_.text_ends[text - 1];
    const std::int64_t text_begin = sentence_begin(first);
    const auto begin = static_cast<std::ptrdiff_t>(out.size());
    for (std::int64_t sentence = first; sentence < texts_.text_ends[text]; ++sentence)
      for (std::int64_t language = 0; language < texts_.n_languages; ++language)
        match_sentence(sentence, language, sentence_begin(sentence) - text_begin, out);
    for (auto match = out.begin() + begin; match != out.end(); ++match) match_of_[at(match->term)] = -1;
    std::sort(out.begin() + begin, out.end(), [](const auto& a, const auto& b) { return a.term < b.term; });
  }

 private:
  struct Found {
    std::int32_t term;
    std::int32_t next;  // another with the same key, or -1
    bool inside;
  };

  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  std::int64_t sentence_begin(std::int64_t i) const { return i == 0 ? 0 : texts_.sentence_ends[i - 1]; }

  void match_sentence(std::int64_t number, std::int64_t language, std::int64_t place, std::vector<TermMatch>& out) {
    sentence_.clear();
    distinct_.clear();
    found_.clear();
    ++sentence_number_;
    for (std::int64_t i = sentence_begin(number); i < texts_.sentence_ends[number]; ++i) {
      const std::int32_t stem = texts_.stem_of[texts_.tokens[i] * texts_.n_languages + language];
      sentence_.push_back(stem);
      if (stem < 0 || seen_[at(stem)] == sentence_number_) continue;
      seen_[at(stem)] = sentence_number_;
      distinct_.push_back(stem);
    }
    for (const std::int32_t stem : distinct_) find_terms(stem);
    for (const Found& found : found_) mark_inside(stems_of(index_, found.term));
    for (const Found& found : found_) add(found, place, out);
    for (const std::int32_t stem : distinct_) first_found_[at(stem)] = -1;
  }

  /// The terms with a key that are in the sentence.
  void find_terms(std::int32_t key) {
    const std::int64_t begin = key == 0 ? 0 : index_.key_ends[key - 1];
    for (std::int64_t i = begin; i < index_.key_ends[key]; ++i) {
      const std::int32_t term = index_.key_terms[i];
      const Stems stems = stems_of(index_, term);
      if (!std::all_of(stems.begin(), stems.end(), [&](auto stem) { return seen_[at(stem)] == sentence_number_; }))
        continue;
      found_.push_back({term, first_found_[at(key)], false});
      first_found_[at(key)] = static_cast<std::int32_t>(found_.size()) - 1;
    }
  }

  /// Marks the shorter terms whose stems a term has.
  void mark_inside(Stems longer) {
    if (longer.size() < 2) return;
    for (std::size_t k = 0; k < longer.size(); ++k) {
      if (contains(longer.first(k), longer[k])) continue;
      for (std::int32_t i = first_found_[at(longer[k])]; i >= 0; i = found_[at(i)].next) {
        const Stems stems = stems_of(index_, found_[at(i)].term);
        if (stems.size() < longer.size() && contains_all(longer, stems)) found_[at(i)].inside = true;
      }
    }
  }

  void add(const Found& found, std::int64_t sentence_place, std::vector<TermMatch>& out) {
    const Place place = locator_.locate(sentence_, stems_of(index_, found.term));
    const auto begin = static_cast<std::int32_t>(sentence_place + place.begin);
    const auto gap = static_cast<std::int32_t>(place.gap);
    std::int64_t& number = match_of_[at(found.term)];
    if (number < 0) {
      number = static_cast<std::int64_t>(out.size());
      out.push_back({found.term, 0, 0, 0, begin, begin, gap});
    }
    TermMatch& match = out[at(number)];
    ++match.count;
    match.inside += found.inside ? 1 : 0;
    match.exact += place.exact ? 1 : 0;
    match.last = begin;
    match.gap = std::min(match.gap, gap);
  }

  const StemmedTexts& texts_;
  const TermIndex& index_;
  std::vector<std::int64_t> seen_;         // of each stem, the last sentence that had it
  std::vector<std::int32_t> first_found_;  // of each key, the last of its terms found here, which leads to the others
  std::vector<std::int64_t> match_of_;     // of each term, its place among this text's
  std::int64_t sentence_number_ = 0;
  std::vector<std::int32_t> sentence_;  // stems; -1 for words in no term
  std::vector<std::int32_t> distinct_;
  std::vector<Found> found_;
  Locator locator_;
};

/// Where each block of texts begins, and the end of the last.
std::vector<std::int64_t> divide(const StemmedTexts& texts) {
  std::vector<std::int64_t> begins{0};
  std::int64_t done = 0;
  for (std::int64_t i = 0; i < texts.n_texts; ++i) {
    const std::int64_t sentences = texts.text_ends[i];
    const std::int64_t tokens = sentences == 0 ? 0 : texts.sentence_ends[sentences - 1];
    if (tokens - done < kBlockTokens && i + 1 < texts.n_texts) continue;
    begins.push_back(i + 1);
    done = tokens;
  }
  return begins;
}

}  // namespace

TermMatches match_terms(const StemmedTexts& texts, const TermIndex& index, int threads, Control& control) {
  struct Block {
    std::vector<TermMatch> matches;
    std::vector<std::int64_t> ends;
  };
  const std::vector<std::int64_t> begins = divide(texts);
  const auto n_blocks = static_cast<std::int64_t>(begins.size()) - 1;
  std::vector<Block> blocks(static_cast<std::size_t>(n_blocks));
  const int n_workers = clamp_threads(n_blocks, threads);
  std::vector<Matcher> matchers(static_cast<std::size_t>(n_workers), Matcher(texts, index));
  parallel_for(n_blocks, n_workers, control, [&](std::int64_t i, int worker) {
    Block& block = blocks[static_cast<std::size_t>(i)];
    for (std::int64_t text = begins[static_cast<std::size_t>(i)]; text < begins[static_cast<std::size_t>(i) + 1];
         ++text) {
      control.check_in(worker);
      matchers[static_cast<std::size_t>(worker)].match(text, block.matches);
      block.ends.push_back(static_cast<std::int64_t>(block.matches.size()));
    }
  });
  TermMatches out;
  for (const Block& block : blocks) {
    const auto n_before = static_cast<std::int64_t>(out.matches.size());
    out.matches.insert(out.matches.end(), block.matches.begin(), block.matches.end());
    for (const std::int64_t end : block.ends) out.text_ends.push_back(n_before + end);
  }
  return out;
}

}  // namespace umpteen
