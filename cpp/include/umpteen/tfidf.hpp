#pragma once

#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "umpteen/parallel.hpp"

namespace umpteen {

/// One text, UTF-8. ASCII letters of a `raw` text are still to be lower-cased, where the rules ask for it; other
/// texts went through Python's own rules, which know every script.
struct TextView {
  std::string_view bytes;
  bool raw = false;
};

/// One slot of an open hash table: 0 in `id_plus_one` is an empty slot.
struct TermSlot {
  std::uint32_t hash;
  std::uint32_t id_plus_one;
};

/// Terms and where to find them. The arrays may come from a file: `find` never reads outside of them, whatever the
/// slots hold. `ends` must rise to the number of bytes, and n_slots be a power of two.
struct TermView {
  const char* bytes = nullptr;
  const std::int64_t* ends = nullptr;
  std::int64_t n_terms = 0;
  const TermSlot* slots = nullptr;
  std::int64_t n_slots = 0;

  std::string_view term(std::int64_t id) const {
    const std::int64_t begin = id == 0 ? 0 : ends[id - 1];
    return {bytes + begin, static_cast<std::size_t>(ends[id] - begin)};
  }
  /// The term's id, or -1.
  std::int32_t find(std::string_view key, std::uint32_t hash) const;
};

/// The hash of a term in slots: part of the file format, so the same on every machine.
std::uint32_t hash_term(std::string_view term);

/// Terms in the order they were first seen.
class TermList {
 public:
  explicit TermList(std::int64_t n_expected = 0);
  std::int32_t find_or_add(std::string_view term, std::uint32_t hash);
  TermView view() const;
  /// Where the search for a hash begins.
  const TermSlot* slot_of(std::uint32_t hash) const { return slots_.data() + (hash & (slots_.size() - 1)); }
  std::int64_t size() const { return static_cast<std::int64_t>(ends_.size()); }

  std::vector<char> bytes_;
  std::vector<std::int64_t> ends_;
  std::vector<TermSlot> slots_;

 private:
  void grow();
};

/// What a term is a run of.
enum class TermUnit : std::uint8_t {
  word,
  character,          ///< of the text; two or more white spaces count as one space
  character_of_word,  ///< of one word between white spaces and the space on either side of it
};

/// How a text becomes terms: its words, without stop words, and runs of min_n to max_n of them joined by a space; or
/// runs of as many characters. A word of fewer characters than min_n is one term.
struct TermRules {
  TermUnit unit = TermUnit::word;
  bool lowercase = true;
  /// Words are given, each ended by NUL; else they are the longest runs of at least min_length word characters.
  bool words_given = false;
  /// Combining marks belong to the words they follow, and runs of a script without spaces become pairs of characters.
  bool all_scripts = false;
  std::int64_t min_length = 2;
  /// Above 0, only so many characters from the start of each word are kept.
  std::int64_t kept_length = 0;
  std::int64_t min_n = 1;
  std::int64_t max_n = 1;
  TermView stop_words;
  /// Above 0 there is no vocabulary: a term's column is its MurmurHash3 modulo this.
  std::int64_t n_hashed = 0;
};

/// The column of a term, or -1.
std::int32_t find_column(std::string_view term, const TermRules& rules, const TermView& vocabulary);

/// A bit for every Unicode character that may stand in a word; null is enough for ASCII texts. With all_scripts, two
/// more tables come behind: the combining marks, and the characters of scripts without spaces.
inline constexpr std::size_t kWordTableSize = 0x110000 / 32;
using WordTable = const std::uint32_t*;

/// How counts become values; in double precision, rounded once at the end.
struct Weighting {
  enum class Norm : std::uint8_t { none, l1, l2 };
  bool sublinear = false;       ///< 1 + ln(count) for count
  const double* idf = nullptr;  ///< a factor per column; null for none
  Norm norm = Norm::l2;
};

struct TermCount {
  std::int32_t id;
  std::uint32_t count;
};

/// A CSR matrix with sorted columns, and per row how many terms of the smallest length there were, and how many of
/// them were unknown.
struct WeightedRows {
  std::vector<std::int64_t> indptr;
  std::vector<std::int32_t> indices;
  std::vector<float> values;
  std::vector<std::int64_t> n_terms;
  std::vector<std::int64_t> n_unknown;
};

/// Texts as rows over the columns of a vocabulary, or over hashed columns.
WeightedRows weigh_texts(const std::vector<TextView>& texts, WordTable word_table, const TermRules& rules,
                         const TermView& vocabulary, const Weighting& weighting, int threads, Control& control);

/// Which terms become columns.
struct TermLimits {
  double min_rows = 1;            ///< rows a term must be in at least
  double max_rows = 0;            ///< and at most
  std::int64_t max_features = 0;  ///< above 0, only so many: the most frequent, of equals the first in order
};

/// Counts the terms of texts that come batch by batch; the texts may be forgotten after each.
///
/// Every worker keeps terms of its own, numbered as it meets them, so nothing is shared while counting. `finish`
/// merges them and sorts what remains: the outcome does not depend on which thread counted what.
class TermCounter {
 public:
  TermCounter(const TermRules& rules, bool keep_rows) : rules_(rules), keep_rows_(keep_rows) {}

  void add(const std::vector<TextView>& texts, WordTable word_table, int threads, Control& control);

  /// The columns: terms in byte order, which for UTF-8 is the order of Python's strings, and in how many rows each
  /// is. Only once, after the last batch.
  struct Columns {
    TermList terms;  ///< empty where columns are hashed
    std::vector<std::int64_t> n_rows;
  };
  Columns finish(const TermLimits& limits, int threads, Control& control);

  /// The rows counted, over the columns of `finish`. Only once: they are forgotten on the way.
  WeightedRows rows(const Weighting& weighting, int threads, Control& control);

  std::int64_t n_rows() const { return n_rows_; }

 private:
  struct TermStats {
    std::int64_t row = -1;   // the row it was last seen in
    std::int64_t entry = 0;  // and its place there
    std::int64_t n_rows = 0;
    std::int64_t n_times = 0;
  };
  struct Worker {
    TermList terms;
    std::vector<TermStats> stats;
    std::vector<std::int32_t> column_of;  // after finish; -1 for terms that were dropped
  };
  struct Block {
    int worker = 0;
    std::vector<TermCount> entries;
    std::vector<std::int64_t> ends;  // of each row
  };

  void merge_workers(TermList& merged, std::vector<TermStats>& stats, Control& control);

  TermRules rules_;
  bool keep_rows_;
  std::int64_t n_rows_ = 0;
  std::vector<Worker> workers_;
  std::deque<Block> blocks_;
};

}  // namespace umpteen
