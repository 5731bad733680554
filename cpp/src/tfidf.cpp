#include "umpteen/tfidf.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "characters.hpp"

namespace umpteen {

namespace {

constexpr std::int64_t kBlockBytes = 1 << 17;  // text one worker takes at a time
constexpr std::int64_t kFirstSlots = 1 << 4;
constexpr std::size_t kTermsBetweenChecks = 1 << 16;

template <typename T>
T load(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

template <typename T>
T load_little_endian(const char* p) {
  const T value = load<T>(p);
  if constexpr (std::endian::native == std::endian::big) {
    T swapped = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i)
      swapped = static_cast<T>((swapped << 8) | ((value >> (8 * i)) & 0xff));
    return swapped;
  }
  return value;
}

std::uint64_t mix(std::uint64_t x) {
  x *= 0x9e3779b97f4a7c15;
  return x ^ (x >> 32);
}

/// MurmurHash3, 32 bits, seed 0: what scikit-learn hashes features with.
std::int32_t murmur(std::string_view key) {
  constexpr std::uint32_t c1 = 0xcc9e2d51;
  constexpr std::uint32_t c2 = 0x1b873593;
  const auto scramble = [](std::uint32_t k) { return std::rotl(k * c1, 15) * c2; };
  std::uint32_t h = 0;
  const char* p = key.data();
  std::size_t n = key.size();
  for (; n >= 4; p += 4, n -= 4)
    h = std::rotl(h ^ scramble(load_little_endian<std::uint32_t>(p)), 13) * 5 + 0xe6546b64;
  std::uint32_t tail = 0;
  for (std::size_t i = n; i-- > 0;) tail = (tail << 8) | static_cast<unsigned char>(p[i]);
  if (n > 0) h ^= scramble(tail);
  h ^= static_cast<std::uint32_t>(key.size());
  h = (h ^ (h >> 16)) * 0x85ebca6b;
  h = (h ^ (h >> 13)) * 0xc2b2ae35;
  return static_cast<std::int32_t>(h ^ (h >> 16));
}

std::int32_t hashed_column(std::string_view term, std::int64_t n_columns) {
  const std::int64_t hash = murmur(term);
  return static_cast<std::int32_t>((hash < 0 ? -hash : hash) % n_columns);
}

/// Whether Python's str.isspace() holds for a character.
bool is_space(std::uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

/// One text as a row of units, words or characters, such that every run of them is one run of bytes: words are joined
/// by single spaces. Runs stay within a segment: the whole text, or one word with the spaces around it, which it
/// shares with its neighbours.
class Units {
 public:
  struct Segment {
    std::size_t begin;
    std::size_t end;
    std::size_t size() const { return end - begin; }
  };

  explicit Units(const TermRules& rules)
      : rules_(rules), raw_bytes_(make_word_bytes(rules.lowercase)), ready_bytes_(make_word_bytes(false)) {}

  void read(const TextView& text, WordTable table) {
    units_.clear();
    segments_.clear();
    // A word takes its bytes and a space; between two words there is at least one byte. A pair of characters, each of
    // three bytes or more, takes seven bytes for three of the text.
    const std::size_t most = (rules_.all_scripts ? 3 : 1) * text.bytes.size() + 2;
    if (most > capacity_) {
      capacity_ = 2 * most;
      joined_.reset(new char[capacity_]);
    }
    end_ = joined_.get();
    if (rules_.unit == TermUnit::character) {
      read_characters(text);
    } else if (rules_.unit == TermUnit::character_of_word) {
      read_characters_of_words(text);
    } else if (rules_.words_given) {
      read_given(text.bytes);
    } else if (rules_.all_scripts) {
      read_all_scripts(text.bytes, text.raw ? raw_bytes_ : ready_bytes_, table);
    } else {
      read_runs(text.bytes, text.raw ? raw_bytes_ : ready_bytes_, table);
    }
    if (rules_.unit != TermUnit::character_of_word) segments_.push_back({0, units_.size()});
  }

  const std::vector<Segment>& segments() const { return segments_; }
  /// The n units from the i-th.
  std::string_view run(std::size_t i, std::size_t n) const {
    const char* begin = units_[i].data();
    const std::string_view last = units_[i + n - 1];
    return {begin, static_cast<std::size_t>(last.data() + last.size() - begin)};
  }

 private:
  void read_characters(const TextView& text) {
    bool after_space = false;
    for_each_character(text, [&](std::string_view character, bool space) {
      if (space && after_space) {  // the run so far becomes one space
        end_ = const_cast<char*>(units_.back().data());
        units_.pop_back();
        append(" ");
      } else {
        append(character);
      }
      after_space = space;
    });
  }

  void read_characters_of_words(const TextView& text) {
    append(" ");
    std::size_t begin = 0;
    const auto finish = [&] {
      if (units_.size() == begin + 1) return;
      append(" ");
      segments_.push_back({begin, units_.size()});
      begin = units_.size() - 1;
    };
    for_each_character(text, [&](std::string_view character, bool space) {
      if (space) {
        finish();
      } else {
        append(character);
      }
    });
    finish();
  }

  template <typename Visit>
  void for_each_character(const TextView& text, const Visit& visit) {
    const bool lower = text.raw && rules_.lowercase;
    const char* p = text.bytes.data();
    const char* const end = p + text.bytes.size();
    while (p < end) {
      const auto byte = static_cast<unsigned char>(*p);
      if (byte < 0x80) {
        const char character = lower && byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + 32) : *p;
        visit(std::string_view(&character, 1), is_space(byte));
        ++p;
      } else {
        const auto [c, n] =
            decode(reinterpret_cast<const unsigned char*>(p), reinterpret_cast<const unsigned char*>(end));
        visit(std::string_view(p, static_cast<std::size_t>(n)), is_space(c));
        p += n;
      }
    }
  }

  void append(std::string_view character) {
    std::memcpy(end_, character.data(), character.size());
    units_.emplace_back(end_, character.size());
    end_ += character.size();
  }

  void read_runs(std::string_view text, const std::array<unsigned char, 256>& word_bytes, WordTable table) {
    const auto* p = reinterpret_cast<const unsigned char*>(text.data());
    const unsigned char* const end = p + text.size();
    while (p < end) {
      char* const begin = end_;
      std::int64_t length = 0;
      while (p < end) {
        const unsigned char byte = word_bytes[*p];
        if (byte == 0) break;
        if (byte != 0xff) {
          *end_++ = static_cast<char>(byte);
          ++p;
        } else {
          if (table == nullptr) throw std::invalid_argument("text beyond ASCII needs the table of word characters");
          const auto [c, n] = decode(p, end);
          if ((table[c >> 5] >> (c & 31) & 1) == 0) break;
          std::memcpy(end_, p, static_cast<std::size_t>(n));
          end_ += n;
          p += n;
        }
        ++length;
      }
      if (length >= rules_.min_length) {
        finish_word(begin);
      } else {
        end_ = begin;
      }
      if (p < end) p += *p < 0x80 ? 1 : decode(p, end).second;
    }
  }

  /// As read_runs, but marks go on with words, and runs of a script without spaces become pairs of characters.
  void read_all_scripts(std::string_view text, const std::array<unsigned char, 256>& word_bytes, WordTable table) {
    enum class Kind : std::uint8_t { none, spaced, unspaced };
    Kind kind = Kind::none;
    char* begin = end_;
    std::int64_t length = 0;  // characters of this kind so far
    std::string_view previous;
    const auto finish = [&] {
      if (kind == Kind::spaced && length >= rules_.min_length) {
        finish_word(begin);
      } else if (kind == Kind::unspaced && length == 1) {
        append_word({previous});
      } else if (kind == Kind::spaced) {
        end_ = begin;
      }
    };
    const char* p = text.data();
    const char* const end = p + text.size();
    while (p < end) {
      const auto byte = static_cast<unsigned char>(*p);
      char ascii = static_cast<char>(word_bytes[byte]);
      std::string_view character(&ascii, 1);
      Kind next = ascii == 0 ? Kind::none : Kind::spaced;
      std::size_t n_bytes = 1;
      if (byte >= 0x80) {
        if (table == nullptr) throw std::invalid_argument("text beyond ASCII needs the table of word characters");
        const auto [c, n] =
            decode(reinterpret_cast<const unsigned char*>(p), reinterpret_cast<const unsigned char*>(end));
        n_bytes = static_cast<std::size_t>(n);
        character = {p, n_bytes};
        const auto is_in = [table, c = c](std::size_t which) {
          return (table[which * kWordTableSize + (c >> 5)] >> (c & 31) & 1) != 0;
        };
        const bool counts = is_in(0) || (kind != Kind::none && is_in(1));
        next = !counts ? Kind::none : is_in(2) ? Kind::unspaced : Kind::spaced;
      }
      if (next != kind) {
        finish();
        kind = next;
        begin = end_;
        length = 0;
      }
      if (kind == Kind::spaced) {
        std::memcpy(end_, character.data(), character.size());
        end_ += character.size();
      } else if (kind == Kind::unspaced) {
        if (length > 0) append_word({previous, character});
        previous = character;
      }
      ++length;
      p += n_bytes;
    }
    finish();
  }

  void append_word(std::initializer_list<std::string_view> parts) {
    char* const begin = end_;
    for (const std::string_view part : parts) {
      std::memcpy(end_, part.data(), part.size());
      end_ += part.size();
    }
    finish_word(begin);
  }

  void read_given(std::string_view text) {
    while (!text.empty()) {
      const std::string_view word = text.substr(0, text.find('\0'));
      char* const begin = end_;
      std::memcpy(begin, word.data(), word.size());
      end_ += word.size();
      finish_word(begin);
      text.remove_prefix(std::min(word.size() + 1, text.size()));
    }
  }

  void finish_word(char* begin) {
    const std::string_view word(begin, static_cast<std::size_t>(end_ - begin));
    if (rules_.stop_words.n_terms > 0 && rules_.stop_words.find(word, hash_term(word)) >= 0) {
      end_ = begin;
    } else {
      if (rules_.kept_length > 0) end_ = begin + count_kept(word);
      units_.emplace_back(begin, static_cast<std::size_t>(end_ - begin));
      *end_++ = ' ';
    }
  }

  /// The bytes of a word's first characters: every character has one byte that continues no other.
  std::ptrdiff_t count_kept(std::string_view word) const {
    std::int64_t n_characters = 0;
    for (std::size_t i = 0; i < word.size(); ++i) {
      const bool begins = (static_cast<unsigned char>(word[i]) & 0xc0) != 0x80;
      if (begins && ++n_characters > rules_.kept_length) return static_cast<std::ptrdiff_t>(i);
    }
    return static_cast<std::ptrdiff_t>(word.size());
  }

  const TermRules& rules_;
  std::array<unsigned char, 256> raw_bytes_;
  std::array<unsigned char, 256> ready_bytes_;
  std::unique_ptr<char[]> joined_;
  std::size_t capacity_ = 0;
  char* end_ = nullptr;
  std::vector<std::string_view> units_;
  std::vector<Segment> segments_;
};

/// Visits the terms of a row. Slots of a large vocabulary are far away, so those of the next few terms are fetched
/// ahead: `slot_of(hash)` gives which. Then visit(term, hash, is_shortest) is called for each; where columns are
/// hashed, the hash is the column.
template <typename SlotOf, typename Visit>
class TermQueue {
 public:
  TermQueue(const TermRules& rules, Control& control, int worker, const SlotOf& slot_of, const Visit& visit)
      : rules_(rules), control_(control), worker_(worker), slot_of_(slot_of), visit_(visit) {}

  void push(std::string_view term, bool is_shortest) {
    if (size_ == ahead_.size()) flush();
    Term& next = ahead_[size_++];
    next = {term, 0, is_shortest};
    if (rules_.n_hashed > 0) {
      next.hash = static_cast<std::uint32_t>(hashed_column(term, rules_.n_hashed));
    } else {
      next.hash = hash_term(term);
      __builtin_prefetch(slot_of_(next.hash));
    }
  }

  void flush() {
    for (std::size_t i = 0; i < size_; ++i) visit_(ahead_[i].bytes, ahead_[i].hash, ahead_[i].is_shortest);
    n_visited_ += size_;
    size_ = 0;
    if (n_visited_ < kTermsBetweenChecks) return;
    control_.check_in(worker_);
    n_visited_ = 0;
  }

 private:
  struct Term {
    std::string_view bytes;
    std::uint32_t hash;
    bool is_shortest;
  };
  const TermRules& rules_;
  Control& control_;
  int worker_;
  const SlotOf& slot_of_;
  const Visit& visit_;
  std::array<Term, 32> ahead_;
  std::size_t size_ = 0;
  std::size_t n_visited_ = 0;
};

/// Calls visit(term, hash, is_shortest) for every term of a row, by segment and then by length; see TermQueue.
template <typename SlotOf, typename Visit>
void for_each_term(const Units& units, const TermRules& rules, Control& control, int worker, const SlotOf& slot_of,
                   const Visit& visit) {
  control.check_in(worker);
  TermQueue<SlotOf, Visit> queue(rules, control, worker, slot_of, visit);
  const auto min_n = static_cast<std::size_t>(rules.min_n);
  const auto max_n = static_cast<std::size_t>(rules.max_n);
  for (const Units::Segment& segment : units.segments()) {
    for (std::size_t n = min_n; n <= std::min(max_n, segment.size()); ++n)
      for (std::size_t i = segment.begin; i + n <= segment.end; ++i) queue.push(units.run(i, n), n == min_n);
    if (rules.unit == TermUnit::character_of_word && segment.size() < min_n)
      queue.push(units.run(segment.begin, segment.size()), true);
  }
  queue.flush();
}

/// Whether two runs of n bytes are equal; most terms are short, and calling memcmp costs more than comparing them.
inline bool is_same(const char* a, const char* b, std::size_t n) {
  if (n > 16) return std::memcmp(a, b, n) == 0;
  if (n >= 8)  // two loads that may overlap read any 8 to 16 bytes
    return ((load<std::uint64_t>(a) ^ load<std::uint64_t>(b)) |
            (load<std::uint64_t>(a + n - 8) ^ load<std::uint64_t>(b + n - 8))) == 0;
  if (n >= 4)
    return ((load<std::uint32_t>(a) ^ load<std::uint32_t>(b)) |
            (load<std::uint32_t>(a + n - 4) ^ load<std::uint32_t>(b + n - 4))) == 0;
  for (std::size_t i = 0; i < n; ++i)
    if (a[i] != b[i]) return false;
  return true;
}

inline bool is_same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && is_same(a.data(), b.data(), a.size());
}

/// Sorts items by their ids, which are not negative: byte by byte where they are many.
template <typename T, typename IdOf>
void sort_by_id(T* items, std::size_t n, std::vector<T>& scratch, const IdOf& id_of) {
  constexpr std::size_t kFew = 96;
  if (n < kFew) {
    std::sort(items, items + n, [&](const T& a, const T& b) { return id_of(a) < id_of(b); });
    return;
  }
  std::uint32_t highest = 0;
  for (std::size_t i = 0; i < n; ++i) highest |= static_cast<std::uint32_t>(id_of(items[i]));
  if (scratch.size() < n) scratch.resize(n);
  T* from = items;
  T* to = scratch.data();
  for (int shift = 0; shift < 32 && (highest >> shift) != 0; shift += 8) {
    const auto digit = [&](const T& item) { return static_cast<std::uint32_t>(id_of(item)) >> shift & 0xff; };
    std::array<std::uint32_t, 257> begins{};
    for (std::size_t i = 0; i < n; ++i) ++begins[digit(from[i]) + 1];
    for (std::size_t d = 1; d < 256; ++d) begins[d] += begins[d - 1];
    for (std::size_t i = 0; i < n; ++i) to[begins[digit(from[i])]++] = from[i];
    std::swap(from, to);
  }
  if (from != items) std::copy(from, from + n, items);
}

/// Sorts a row's ids and appends each with its count.
void append_counts(std::vector<std::int32_t>& ids, std::vector<std::int32_t>& scratch,
                   std::vector<TermCount>& entries) {
  sort_by_id(ids.data(), ids.size(), scratch, [](std::int32_t id) { return id; });
  for (std::size_t i = 0; i < ids.size();) {
    std::size_t next = i + 1;
    while (next < ids.size() && ids[next] == ids[i]) ++next;
    entries.push_back({ids[i], static_cast<std::uint32_t>(next - i)});
    i = next;
  }
}

/// Texts cut into blocks of about the same work: where each begins, and the end.
std::vector<std::int64_t> cut_into_blocks(const std::vector<TextView>& texts) {
  std::vector<std::int64_t> cuts{0};
  std::int64_t n_bytes = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    n_bytes += static_cast<std::int64_t>(texts[i].bytes.size()) + 64;
    if (n_bytes >= kBlockBytes || i + 1 == texts.size()) {
      cuts.push_back(static_cast<std::int64_t>(i) + 1);
      n_bytes = 0;
    }
  }
  return cuts;
}

/// Computes the values of rows; keeps scratch space, so one per worker.
class RowWeigher {
 public:
  explicit RowWeigher(const Weighting& weighting) : weighting_(weighting) {
    for (std::size_t i = 1; i < kSmall; ++i) tf_[i] = weigh_count(i);
  }

  void weigh(const TermCount* entries, std::int64_t n, std::int32_t* indices, float* values) {
    exact_.resize(static_cast<std::size_t>(n));
    double total = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const TermCount& entry = entries[i];
      double value = entry.count < kSmall ? tf_[entry.count] : weigh_count(entry.count);
      if (weighting_.idf != nullptr) value *= weighting_.idf[entry.id];
      total += weighting_.norm == Weighting::Norm::l1 ? std::abs(value) : value * value;
      exact_[static_cast<std::size_t>(i)] = value;
    }
    double norm = 1;
    if (weighting_.norm == Weighting::Norm::l1) norm = total;
    if (weighting_.norm == Weighting::Norm::l2) norm = std::sqrt(total);
    if (norm == 0) norm = 1;
    for (std::int64_t i = 0; i < n; ++i) {
      indices[i] = entries[i].id;
      values[i] = static_cast<float>(exact_[static_cast<std::size_t>(i)] / norm);
    }
  }

 private:
  static constexpr std::size_t kSmall = 64;

  double weigh_count(std::size_t count) const {
    const auto value = static_cast<double>(count);
    return weighting_.sublinear ? std::log(value) + 1 : value;
  }

  const Weighting& weighting_;
  std::array<double, kSmall> tf_{};
  std::vector<double> exact_;
};

/// Sorts ids by their terms' bytes. Terms differ, so the order is one and the same however the work is split.
void sort_by_term(std::vector<std::int32_t>& ids, const TermView& terms, int threads, Control& control) {
  struct Key {
    std::array<std::uint64_t, 2> prefix;  // the first sixteen bytes, which decide most comparisons
    std::int32_t id;
  };
  std::vector<Key> keys(ids.size());
  const auto is_before = [&](const Key& a, const Key& b) {
    if (a.prefix[0] != b.prefix[0]) return a.prefix[0] < b.prefix[0];
    if (a.prefix[1] != b.prefix[1]) return a.prefix[1] < b.prefix[1];
    return terms.term(a.id) < terms.term(b.id);
  };
  const std::int64_t n_parts = clamp_threads(static_cast<std::int64_t>(ids.size()) / 1024, threads);
  const auto cut = [&](std::int64_t part) { return static_cast<std::int64_t>(ids.size()) * part / n_parts; };
  parallel_for(n_parts, threads, control, [&](std::int64_t part, int) {
    for (std::int64_t i = cut(part); i < cut(part + 1); ++i) {
      const std::int32_t id = ids[static_cast<std::size_t>(i)];
      const std::string_view term = terms.term(id);
      Key& key = keys[static_cast<std::size_t>(i)];
      key = {{0, 0}, id};
      for (std::size_t k = 0; k < std::min<std::size_t>(16, term.size()); ++k)
        key.prefix[k / 8] |= static_cast<std::uint64_t>(static_cast<unsigned char>(term[k])) << (56 - 8 * (k % 8));
    }
    std::sort(keys.begin() + cut(part), keys.begin() + cut(part + 1), is_before);
  });
  for (std::int64_t part = 1; part < n_parts; ++part) {
    control.check_in(0);
    std::inplace_merge(keys.begin(), keys.begin() + cut(part), keys.begin() + cut(part + 1), is_before);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = keys[i].id;
}

/// Rows of all blocks, one after the other, into one matrix.
template <typename Blocks, typename Rows>
void allocate_rows(const Blocks& blocks, std::int64_t n_rows, Rows& out) {
  out.indptr.reserve(static_cast<std::size_t>(n_rows) + 1);
  out.indptr.push_back(0);
  std::int64_t start = 0;
  for (const auto& block : blocks) {
    for (const std::int64_t end : block.ends) out.indptr.push_back(start + end);
    start = out.indptr.back();
  }
  out.indices.resize(static_cast<std::size_t>(start));
  out.values.resize(static_cast<std::size_t>(start));
}

}  // namespace

std::uint32_t hash_term(std::string_view term) {
  const char* p = term.data();
  std::size_t n = term.size();
  std::uint64_t h = mix(n + 1);
  for (; n >= 8; p += 8, n -= 8) h = mix(h ^ load_little_endian<std::uint64_t>(p));
  std::uint64_t tail = 0;
  if (n >= 4) {  // two loads that may overlap read any 4 to 7 bytes
    tail = load_little_endian<std::uint32_t>(p) |
           (static_cast<std::uint64_t>(load_little_endian<std::uint32_t>(p + n - 4)) << 32);
  } else if (n > 0) {
    const auto byte = [p](std::size_t i) { return static_cast<std::uint64_t>(static_cast<unsigned char>(p[i])); };
    tail = byte(0) | (byte(n / 2) << 8) | (byte(n - 1) << 16);
  }
  return static_cast<std::uint32_t>(mix(h ^ tail) >> 16);
}

std::int32_t TermView::find(std::string_view key, std::uint32_t hash) const {
  const std::int64_t mask = n_slots - 1;
  for (std::int64_t i = 0; i < n_slots; ++i) {
    const TermSlot& slot = slots[(hash + i) & mask];
    if (slot.id_plus_one == 0) return -1;
    const std::int64_t id = static_cast<std::int64_t>(slot.id_plus_one) - 1;
    if (slot.hash == hash && id < n_terms && is_same(term(id), key)) return static_cast<std::int32_t>(id);
  }
  return -1;
}

std::int32_t find_column(std::string_view term, const TermRules& rules, const TermView& vocabulary) {
  return rules.n_hashed > 0 ? hashed_column(term, rules.n_hashed) : vocabulary.find(term, hash_term(term));
}

TermList::TermList(std::int64_t n_expected)
    : slots_(std::bit_ceil(static_cast<std::size_t>(std::max(kFirstSlots, 2 * n_expected)))) {}

TermView TermList::view() const {
  return {bytes_.data(), ends_.data(), size(), slots_.data(), static_cast<std::int64_t>(slots_.size())};
}

std::int32_t TermList::find_or_add(std::string_view term, std::uint32_t hash) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  const TermView terms = view();
  for (; slots_[at].id_plus_one != 0; at = (at + 1) & mask) {
    const std::int64_t id = static_cast<std::int64_t>(slots_[at].id_plus_one) - 1;
    if (slots_[at].hash == hash && is_same(terms.term(id), term)) return static_cast<std::int32_t>(id);
  }
  if (size() >= std::numeric_limits<std::int32_t>::max())
    throw std::length_error("there are more than 2147483647 different terms");
  bytes_.insert(bytes_.end(), term.begin(), term.end());
  ends_.push_back(static_cast<std::int64_t>(bytes_.size()));
  slots_[at] = {hash, static_cast<std::uint32_t>(size())};
  if (2 * ends_.size() > slots_.size()) grow();
  return static_cast<std::int32_t>(size() - 1);
}

void TermList::grow() {
  std::vector<TermSlot> slots(2 * slots_.size());
  const std::size_t mask = slots.size() - 1;
  for (const TermSlot& slot : slots_) {
    if (slot.id_plus_one == 0) continue;
    std::size_t at = slot.hash & mask;
    while (slots[at].id_plus_one != 0) at = (at + 1) & mask;
    slots[at] = slot;
  }
  slots_ = std::move(slots);
}

WeightedRows weigh_texts(const std::vector<TextView>& texts, WordTable word_table, const TermRules& rules,
                         const TermView& vocabulary, const Weighting& weighting, int threads, Control& control) {
  struct Block {
    std::vector<std::int32_t> indices;
    std::vector<float> values;
    std::vector<std::int64_t> ends;
  };
  struct Scratch {
    Units units;
    RowWeigher weigher;
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> sorted;
    std::vector<TermCount> entries;
  };
  const std::vector<std::int64_t> cuts = cut_into_blocks(texts);
  const auto n_blocks = static_cast<std::int64_t>(cuts.size()) - 1;
  std::vector<Block> blocks(static_cast<std::size_t>(n_blocks));
  std::vector<Scratch> scratch;
  for (int i = 0; i < clamp_threads(n_blocks, threads); ++i)
    scratch.push_back({Units(rules), RowWeigher(weighting), {}, {}, {}});
  WeightedRows out;
  out.n_terms.resize(texts.size());
  out.n_unknown.resize(texts.size());

  parallel_for(n_blocks, threads, control, [&](std::int64_t b, int worker) {
    auto& [units, weigher, ids, sorted, entries] = scratch[static_cast<std::size_t>(worker)];
    Block& block = blocks[static_cast<std::size_t>(b)];
    for (auto row = static_cast<std::size_t>(cuts[b]); row < static_cast<std::size_t>(cuts[b + 1]); ++row) {
      ids.clear();
      entries.clear();
      std::int64_t n_terms = 0;
      std::int64_t n_unknown = 0;
      units.read(texts[row], word_table);
      const auto slot_of = [&](std::uint32_t hash) { return vocabulary.slots + (hash & (vocabulary.n_slots - 1)); };
      const auto count = [&](std::string_view term, std::uint32_t hash, bool is_shortest) {
        const std::int32_t id = rules.n_hashed > 0 ? static_cast<std::int32_t>(hash) : vocabulary.find(term, hash);
        n_terms += is_shortest ? 1 : 0;
        n_unknown += is_shortest && id < 0 ? 1 : 0;
        if (id >= 0) ids.push_back(id);
      };
      for_each_term(units, rules, control, worker, slot_of, count);
      out.n_terms[row] = n_terms;
      out.n_unknown[row] = n_unknown;
      append_counts(ids, sorted, entries);
      const std::size_t begin = block.indices.size();
      block.indices.resize(begin + entries.size());
      block.values.resize(begin + entries.size());
      weigher.weigh(entries.data(), static_cast<std::int64_t>(entries.size()), block.indices.data() + begin,
                    block.values.data() + begin);
      block.ends.push_back(static_cast<std::int64_t>(block.indices.size()));
    }
  });

  allocate_rows(blocks, static_cast<std::int64_t>(texts.size()), out);
  for (std::size_t b = 0, row = 0; b < blocks.size(); row = static_cast<std::size_t>(cuts[++b])) {
    const auto start = static_cast<std::ptrdiff_t>(out.indptr[row]);
    std::copy(blocks[b].indices.begin(), blocks[b].indices.end(), out.indices.begin() + start);
    std::copy(blocks[b].values.begin(), blocks[b].values.end(), out.values.begin() + start);
  }
  return out;
}

void TermCounter::add(const std::vector<TextView>& texts, WordTable word_table, int threads, Control& control) {
  const std::vector<std::int64_t> cuts = cut_into_blocks(texts);
  const auto n_blocks = static_cast<std::int64_t>(cuts.size()) - 1;
  const auto n_workers = static_cast<std::size_t>(clamp_threads(n_blocks, threads));
  if (workers_.size() < n_workers) workers_.resize(n_workers);
  const std::size_t first_block = blocks_.size();
  if (keep_rows_) blocks_.resize(first_block + static_cast<std::size_t>(n_blocks));
  std::vector<Units> units;
  for (std::size_t w = 0; w < n_workers; ++w) units.emplace_back(rules_);

  parallel_for(n_blocks, threads, control, [&](std::int64_t b, int worker_id) {
    Worker& worker = workers_[static_cast<std::size_t>(worker_id)];
    Block block;
    block.worker = worker_id;
    std::vector<std::int32_t> ids;
    if (rules_.n_hashed > 0) worker.stats.resize(static_cast<std::size_t>(rules_.n_hashed));
    for (std::int64_t i = cuts[b]; i < cuts[b + 1]; ++i) {
      Units& row_units = units[static_cast<std::size_t>(worker_id)];
      row_units.read(texts[static_cast<std::size_t>(i)], word_table);
      if (!keep_rows_) block.entries.clear();
      const std::int64_t row = n_rows_ + i;
      const auto slot_of = [&](std::uint32_t hash) { return worker.terms.slot_of(hash); };
      const auto count = [&](std::string_view term, std::uint32_t hash, bool) {
        const std::int32_t id =
            rules_.n_hashed > 0 ? static_cast<std::int32_t>(hash) : worker.terms.find_or_add(term, hash);
        if (static_cast<std::size_t>(id) >= worker.stats.size()) worker.stats.emplace_back();
        TermStats& stats = worker.stats[static_cast<std::size_t>(id)];
        ++stats.n_times;
        if (stats.row == row) {
          ++block.entries[static_cast<std::size_t>(stats.entry)].count;
        } else {
          stats.row = row;
          stats.entry = static_cast<std::int64_t>(block.entries.size());
          ++stats.n_rows;
          block.entries.push_back({id, 1});
        }
      };
      for_each_term(row_units, rules_, control, worker_id, slot_of, count);
      block.ends.push_back(static_cast<std::int64_t>(block.entries.size()));
    }
    if (keep_rows_) {
      block.entries.shrink_to_fit();
      blocks_[first_block + static_cast<std::size_t>(b)] = std::move(block);
    }
  });
  n_rows_ += static_cast<std::int64_t>(texts.size());
}

void TermCounter::merge_workers(TermList& merged, std::vector<TermStats>& stats, Control& control) {
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    Worker& worker = workers_[w];
    worker.column_of.resize(worker.stats.size());
    if (w == 0) {
      std::iota(worker.column_of.begin(), worker.column_of.end(), 0);
      merged = std::move(worker.terms);
      stats = std::move(worker.stats);
      continue;
    }
    const TermView terms = worker.terms.view();
    if (rules_.n_hashed > 0 && stats.size() < worker.stats.size()) stats.resize(worker.stats.size());
    for (std::size_t id = 0; id < worker.stats.size(); ++id) {
      if (id % kTermsBetweenChecks == 0) control.check_in(0);
      std::int32_t to = static_cast<std::int32_t>(id);
      if (rules_.n_hashed == 0) {
        const std::string_view term = terms.term(static_cast<std::int64_t>(id));
        to = merged.find_or_add(term, hash_term(term));
        if (static_cast<std::size_t>(to) >= stats.size()) stats.emplace_back();
      }
      stats[static_cast<std::size_t>(to)].n_rows += worker.stats[id].n_rows;
      stats[static_cast<std::size_t>(to)].n_times += worker.stats[id].n_times;
      worker.column_of[id] = to;
    }
    worker.terms = TermList();
    worker.stats = {};
  }
}

TermCounter::Columns TermCounter::finish(const TermLimits& limits, int threads, Control& control) {
  TermList merged;
  std::vector<TermStats> stats;
  merge_workers(merged, stats, control);
  Columns out;
  if (rules_.n_hashed > 0) {
    out.n_rows.resize(static_cast<std::size_t>(rules_.n_hashed));
    for (std::size_t i = 0; i < stats.size(); ++i) out.n_rows[i] = stats[i].n_rows;
    return out;
  }

  std::vector<std::int32_t> order;
  for (std::size_t id = 0; id < stats.size(); ++id) {
    const auto n_rows = static_cast<double>(stats[id].n_rows);
    if (n_rows >= limits.min_rows && n_rows <= limits.max_rows) order.push_back(static_cast<std::int32_t>(id));
  }
  const TermView terms = merged.view();
  sort_by_term(order, terms, threads, control);
  if (limits.max_features > 0 && static_cast<std::int64_t>(order.size()) > limits.max_features) {
    std::vector<std::int32_t> place(order.size());  // in alphabetical order
    std::iota(place.begin(), place.end(), 0);
    const auto n_times = [&](std::int32_t i) {
      return stats[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])].n_times;
    };
    std::stable_sort(place.begin(), place.end(),
                     [&](std::int32_t a, std::int32_t b) { return n_times(a) > n_times(b); });
    place.resize(static_cast<std::size_t>(limits.max_features));
    std::sort(place.begin(), place.end());
    for (std::int32_t& i : place) i = order[static_cast<std::size_t>(i)];
    order = std::move(place);
  }

  out.terms = TermList(static_cast<std::int64_t>(order.size()));
  std::vector<std::int32_t> column_of(stats.size(), -1);
  for (std::size_t column = 0; column < order.size(); ++column) {
    const std::int32_t id = order[column];
    column_of[static_cast<std::size_t>(id)] = static_cast<std::int32_t>(column);
    const std::string_view term = terms.term(id);
    out.terms.find_or_add(term, hash_term(term));
    out.n_rows.push_back(stats[static_cast<std::size_t>(id)].n_rows);
  }
  for (Worker& worker : workers_)
    for (std::int32_t& id : worker.column_of) id = column_of[static_cast<std::size_t>(id)];
  return out;
}

WeightedRows TermCounter::rows(const Weighting& weighting, int threads, Control& control) {
  const auto n_blocks = static_cast<std::int64_t>(blocks_.size());
  parallel_for(n_blocks, threads, control, [&](std::int64_t b, int) {
    Block& block = blocks_[static_cast<std::size_t>(b)];
    const std::vector<std::int32_t>& column_of = workers_[static_cast<std::size_t>(block.worker)].column_of;
    TermCount* const entries = block.entries.data();
    std::vector<TermCount> sorted;
    std::int64_t begin = 0;
    std::int64_t kept = 0;
    for (std::int64_t& end : block.ends) {
      const std::int64_t first = kept;
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int32_t column = column_of[static_cast<std::size_t>(entries[i].id)];
        if (column >= 0) entries[kept++] = {column, entries[i].count};
      }
      sort_by_id(entries + first, static_cast<std::size_t>(kept - first), sorted,
                 [](const TermCount& entry) { return entry.id; });
      begin = end;
      end = kept;
    }
  });

  WeightedRows out;
  allocate_rows(blocks_, n_rows_, out);
  std::vector<std::int64_t> first_row(blocks_.size());
  for (std::size_t b = 1; b < blocks_.size(); ++b)
    first_row[b] = first_row[b - 1] + static_cast<std::int64_t>(blocks_[b - 1].ends.size());
  std::vector<RowWeigher> weighers(static_cast<std::size_t>(clamp_threads(n_blocks, threads)), RowWeigher(weighting));
  parallel_for(n_blocks, threads, control, [&](std::int64_t b, int worker) {
    Block block = std::move(blocks_[static_cast<std::size_t>(b)]);  // forgotten at the end
    std::int64_t begin = 0;
    std::size_t row = static_cast<std::size_t>(first_row[static_cast<std::size_t>(b)]);
    for (const std::int64_t end : block.ends) {
      const std::int64_t to = out.indptr[row++];
      weighers[static_cast<std::size_t>(worker)].weigh(block.entries.data() + begin, end - begin,
                                                       out.indices.data() + to, out.values.data() + to);
      begin = end;
    }
  });
  blocks_.clear();
  return out;
}

}  // namespace umpteen
