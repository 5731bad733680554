#include "umpteen/text_reader.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace umpteen {

namespace {

constexpr std::int64_t kMaxId = std::numeric_limits<std::int32_t>::max() - 1;  // so that their number fits 32 bits
constexpr std::int64_t kChunkBytes = 1 << 20;

bool is_space(char c) { return c == ' ' || c == '\t'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

const char* skip_spaces(const char* p, const char* end) {
  while (p < end && is_space(*p)) ++p;
  return p;
}

/// The token at p as it may be shown to a person: no control bytes, not too long.
std::string show_token(const char* p, const char* end) {
  std::string shown = "'";
  for (; p < end && !is_space(*p) && shown.size() < 40; ++p) {
    if (*p >= 0x20 && *p < 0x7f) {
      shown += *p;
    } else {
      constexpr char kHex[] = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(*p);
      shown += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  if (p < end && !is_space(*p)) shown += "...";
  return shown + "'";
}

struct Line {
  const char* begin;
  const char* end;   // without its end-of-line bytes and its comment
  const char* next;  // where the next line starts
  bool is_row;
};

Line read_line(const char* p, const char* text_end, const TextGrammar& grammar) {
  const auto* newline = static_cast<const char*>(std::memchr(p, '\n', static_cast<std::size_t>(text_end - p)));
  Line line{p, newline ? newline : text_end, newline ? newline + 1 : text_end, true};
  if (line.end > p && line.end[-1] == '\r') --line.end;
  if (grammar.comments) {
    const bool empty = line.end == p;
    if (const auto* hash = static_cast<const char*>(std::memchr(p, '#', static_cast<std::size_t>(line.end - p)))) {
      line.end = hash;
      line.is_row = skip_spaces(p, hash) < hash;
    }
    if (empty) line.is_row = false;
  }
  return line;
}

/// Whether the line starts with a label list rather than with a space or a feature.
bool starts_with_labels(const Line& line) {
  const char* p = line.begin;
  if (p == line.end || is_space(*p)) return false;
  while (p < line.end && !is_space(*p)) {
    if (*p == ':') return false;
    ++p;
  }
  return true;
}

struct Counts {
  std::int64_t lines = 0;
  std::int64_t rows = 0;
  std::int64_t features = 0;
  std::int64_t labels = 0;
};

/// A stretch of whole lines, parsed by one worker.
struct Chunk {
  const char* begin;
  const char* end;
  Counts count;
  Counts start;  // of all chunks before it
  std::int32_t max_feature = -1;
  std::int32_t max_label = -1;
  std::optional<ParseError> error;
};

void count_chunk(Chunk& chunk, const TextGrammar& grammar) {
  for (const char* p = chunk.begin; p < chunk.end;) {
    const Line line = read_line(p, chunk.end, grammar);
    p = line.next;
    ++chunk.count.lines;
    if (!line.is_row) continue;
    ++chunk.count.rows;
    chunk.count.features += std::count(line.begin, line.end, ':');
    if (grammar.labels && starts_with_labels(line)) chunk.count.labels += 1 + std::count(line.begin, line.end, ',');
  }
}

/// What one id must satisfy, and how to say that it does not.
struct IdRule {
  const char* kind;  // "feature" or "label"
  std::int64_t first;
  std::int64_t count;  // -1: not known
  bool from_header;
};

/// Reads an id and returns the byte after it. The error is thrown as a bare message; the caller knows the
/// line.
const char* parse_id(const char* p, const char* end, const IdRule& rule, std::int32_t& id) {
  const char* begin = p;
  std::int64_t value = 0;
  while (p < end && is_digit(*p)) {
    value = value * 10 + (*p - '0');
    if (value > kMaxId)
      throw std::invalid_argument(std::string(rule.kind) + " id " + show_token(begin, end) +
                                  " is above 2147483646, the largest id");
    ++p;
  }
  if (p == begin) {
    if (p < end && *p == '-' && p + 1 < end && is_digit(p[1]))
      throw std::invalid_argument(std::string(rule.kind) + " id " + show_token(begin, end) + " is negative");
    throw std::invalid_argument("expected a " + std::string(rule.kind) + " id, found " +
                                (begin < end ? show_token(begin, end) : "the end of the line"));
  }
  value -= rule.first;
  if (value < 0)
    throw std::invalid_argument(std::string(rule.kind) + " id 0 is below 1, the first id of a one-based file");
  if (rule.count >= 0 && value >= rule.count)
    throw std::invalid_argument(std::string(rule.kind) + " id " + std::string(begin, p) + " is out of range; " +
                                (rule.from_header ? "the header declares " : "there are ") +
                                std::to_string(rule.count) + " " + rule.kind + "s" +
                                (rule.first ? ", counted from 1" : ", counted from 0"));
  id = static_cast<std::int32_t>(value);
  return p;
}

[[noreturn]] void throw_duplicate(const IdRule& rule, std::int64_t id) {
  throw std::invalid_argument(std::string(rule.kind) + " " + std::to_string(id + rule.first) +
                              " comes twice in this row");
}

/// Parses rows into their places. Keeps scratch space, so one per worker.
class RowParser {
 public:
  RowParser(const TextGrammar& grammar, const IdRule& feature_rule, const IdRule& label_rule, ParsedText& out)
      : grammar_(grammar), feature_rule_(feature_rule), label_rule_(label_rule), out_(out) {}

  void parse_chunk(Chunk& chunk) {
    Counts at = chunk.start;
    for (const char* p = chunk.begin; p < chunk.end;) {
      const Line line = read_line(p, chunk.end, grammar_);
      p = line.next;
      ++at.lines;
      if (!line.is_row) continue;
      try {
        const char* rest = line.begin;
        if (grammar_.labels) {
          if (starts_with_labels(line)) rest = parse_labels(line, at, chunk);
          out_.Y.indptr[at.rows + 1] = at.labels;
        }
        parse_features(rest, line.end, at, chunk);
        out_.X.indptr[at.rows + 1] = at.features;
      } catch (const std::invalid_argument& e) {
        chunk.error.emplace(at.lines, e.what());
        return;
      }
      ++at.rows;
    }
  }

 private:
  const char* parse_labels(const Line& line, Counts& at, Chunk& chunk) {
    std::int32_t* const first = out_.Y.indices.get() + at.labels;
    std::int32_t* last = first;
    const char* p = line.begin;
    bool sorted = true;
    while (true) {
      p = parse_id(p, line.end, label_rule_, *last);
      if (last > first && *last <= last[-1]) sorted = false;
      ++last;
      if (p == line.end || is_space(*p)) break;
      if (*p != ',')
        throw std::invalid_argument("expected ',' or a space after a label id, found " + show_token(p, line.end));
      ++p;
    }
    if (!sorted) {
      std::sort(first, last);
      const auto* twice = std::adjacent_find(first, last);
      if (twice != last) throw_duplicate(label_rule_, *twice);
    }
    chunk.max_label = std::max(chunk.max_label, last[-1]);
    at.labels += last - first;
    return p;
  }

  void parse_features(const char* p, const char* end, Counts& at, Chunk& chunk) {
    std::int32_t* const ids = out_.X.indices.get() + at.features;
    float* const values = out_.X_data.get() + at.features;
    std::int64_t n = 0;
    bool sorted = true;
    for (p = skip_spaces(p, end); p < end; p = skip_spaces(p, end)) {
      std::int32_t id = 0;
      const char* token = p;
      p = parse_id(p, end, feature_rule_, id);
      if (p == end || *p != ':')
        throw std::invalid_argument("expected ':' after " + std::string(feature_rule_.kind) + " id " +
                                    std::string(token, p) +
                                    (p < end ? ", found " + show_token(p, end) : ", found the end of the line"));
      const char* number = p + 1;
      float value = 0;
      p = parse_float(number, end, value);
      if (p == nullptr || (p < end && !is_space(*p)))
        throw std::invalid_argument("the value of " + std::string(feature_rule_.kind) + " " +
                                    std::string(token, number - 1) + " must be a finite number, but is " +
                                    (number < end && !is_space(*number) ? show_token(number, end) : "missing"));
      if (value > std::numeric_limits<float>::max() || value < std::numeric_limits<float>::lowest())
        throw std::invalid_argument("the value of " + std::string(feature_rule_.kind) + " " +
                                    std::string(token, number - 1) + " is " + show_token(number, end) +
                                    ", too large for a 32-bit float");
      ids[n] = id;
      values[n] = value;
      if (n > 0 && id <= ids[n - 1]) sorted = false;
      ++n;
    }
    if (n == 0) return;
    if (!sorted) sort_row(ids, values, n);
    chunk.max_feature = std::max(chunk.max_feature, ids[n - 1]);
    at.features += n;
  }

  void sort_row(std::int32_t* ids, float* values, std::int64_t n) {
    scratch_.resize(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) scratch_[static_cast<std::size_t>(i)] = {ids[i], values[i]};
    std::sort(scratch_.begin(), scratch_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::int64_t i = 0; i < n; ++i) {
      std::tie(ids[i], values[i]) = scratch_[static_cast<std::size_t>(i)];
      if (i > 0 && ids[i] == ids[i - 1]) throw_duplicate(feature_rule_, ids[i]);
    }
  }

  const TextGrammar& grammar_;
  const IdRule& feature_rule_;
  const IdRule& label_rule_;
  ParsedText& out_;
  std::vector<std::pair<std::int32_t, float>> scratch_;
};

/// The integers of a header line, or nothing if the line is not a header.
std::optional<std::vector<std::int64_t>> read_header(const Line& line, std::size_t n_wanted) {
  std::vector<std::int64_t> numbers;
  const char* p = skip_spaces(line.begin, line.end);
  if (p != line.begin) return std::nullopt;
  while (p < line.end) {
    const char* begin = p;
    std::int64_t value = 0;
    while (p < line.end && is_digit(*p) && p - begin < 18) value = value * 10 + (*p++ - '0');
    if (p == begin || (p < line.end && !is_space(*p))) return std::nullopt;
    numbers.push_back(value);
    p = skip_spaces(p, line.end);
  }
  // One integer alone is a row with one label. Two or more cannot be a row, so they are a header, right or
  // wrong.
  if (numbers.size() < 2) return std::nullopt;
  if (numbers.size() != n_wanted)
    throw ParseError(1, "the header must have " + std::to_string(n_wanted) + " counts (" +
                            (n_wanted == 3 ? "rows, features, labels" : "rows, columns") + "), but has " +
                            std::to_string(numbers.size()));
  return numbers;
}

std::vector<Chunk> split_into_chunks(const char* begin, const char* end) {
  std::vector<Chunk> chunks;
  while (begin < end) {
    const char* stop = end - begin > kChunkBytes ? begin + kChunkBytes : end;
    if (stop < end) {
      const auto* newline = static_cast<const char*>(std::memchr(stop, '\n', static_cast<std::size_t>(end - stop)));
      stop = newline ? newline + 1 : end;
    }
    chunks.push_back(Chunk{begin, stop, {}, {}, -1, -1, std::nullopt});
    begin = stop;
  }
  return chunks;
}

std::int64_t check_count(std::int64_t count, const char* what) {
  if (count > kMaxId + 1)
    throw ParseError(1, "the header declares " + std::to_string(count) + " " + what + ", more than 2147483647");
  return count;
}

void allocate(SparsePattern& pattern, std::int64_t n_rows, std::int64_t nnz) {
  pattern.indptr.reset(new std::int64_t[static_cast<std::size_t>(n_rows) + 1]);
  pattern.indptr[0] = 0;
  pattern.indices.reset(new std::int32_t[static_cast<std::size_t>(nnz)]);
  pattern.nnz = nnz;
}

/// Whether a number too large or too small for a float is the latter: from_chars does not say.
bool is_below_one(const char* p, const char* end) {
  const char* exponent = std::find_if(p, end, [](char c) { return c == 'e' || c == 'E'; });
  if (exponent != end) return exponent[1] == '-';
  return std::all_of(p, std::find(p, end, '.'), [](char c) { return c == '0'; });
}

}  // namespace

const char* parse_float(const char* begin, const char* end, float& value) noexcept {
  const char* p = begin;
  const bool negative = p < end && *p == '-';
  if (p < end && (*p == '-' || *p == '+')) ++p;
  const char* digits = p;
  std::uint64_t mantissa = 0;
  while (p < end && is_digit(*p)) mantissa = mantissa * 10 + static_cast<std::uint64_t>(*p++ - '0');
  std::int64_t n_digits = p - digits;
  int exponent = 0;
  if (p < end && *p == '.') {
    const char* fraction = ++p;
    while (p < end && is_digit(*p)) mantissa = mantissa * 10 + static_cast<std::uint64_t>(*p++ - '0');
    n_digits += p - fraction;
    exponent = -static_cast<int>(std::min<std::int64_t>(p - fraction, 1 << 20));
  }
  if (n_digits == 0) return nullptr;
  const bool plain = p == end || (*p != 'e' && *p != 'E');

  // Up to 15 digits and a small power of ten are exact in double, so the quotient is rounded once; a second
  // rounding, to float, is harmless unless the double stands right between two floats.
  static constexpr double kPowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                       1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  if (plain && n_digits <= 15) {
    const double quotient = static_cast<double>(mantissa) / kPowers[-exponent];
    const std::uint64_t low = std::bit_cast<std::uint64_t>(quotient) & 0x1fffffff;
    const bool between = low >= 0x0fffffff && low <= 0x10000001;
    if (!between && (mantissa == 0 || quotient > 1e-30)) {
      value = static_cast<float>(negative ? -quotient : quotient);
      return p;
    }
  }
  const char* unsigned_begin = begin < end && *begin == '+' ? begin + 1 : begin;
  if (unsigned_begin < end && *begin == '+' && *unsigned_begin == '-') return nullptr;
  const auto [stop, code] = std::from_chars(unsigned_begin, end, value);
  if (code == std::errc::invalid_argument) return nullptr;
  if (code == std::errc::result_out_of_range) {
    value = is_below_one(digits, stop) ? 0.0F : std::numeric_limits<float>::infinity();
    if (negative) value = -value;
  }
  return stop;
}

ParsedText parse_text(std::string_view text, const TextGrammar& grammar, int threads, Control& control) {
  const char* begin = text.data();
  const char* const end = begin + text.size();
  ParsedText out;
  out.n_features = grammar.n_features;
  out.n_labels = grammar.labels ? grammar.n_labels : 0;

  std::int64_t n_header_lines = 0;
  std::int64_t n_declared_rows = -1;
  bool features_from_header = false;
  bool labels_from_header = false;
  if (grammar.header && begin < end) {
    const Line line = read_line(begin, end, grammar);
    if (const auto header = read_header(line, grammar.labels ? 3 : 2)) {
      out.has_header = true;
      n_header_lines = 1;
      n_declared_rows = (*header)[0];
      const std::int64_t n_features = check_count((*header)[1], grammar.labels ? "features" : "columns");
      const std::int64_t n_labels = grammar.labels ? check_count((*header)[2], "labels") : 0;
      // Counts the caller gave win: a test file's header may know fewer features than the model does.
      if (out.n_features < 0) out.n_features = n_features, features_from_header = true;
      if (grammar.labels && out.n_labels < 0) out.n_labels = n_labels, labels_from_header = true;
      begin = line.next;
    }
  }

  std::vector<Chunk> chunks = split_into_chunks(begin, end);
  const auto n_chunks = static_cast<std::int64_t>(chunks.size());
  parallel_for(n_chunks, threads, control,
               [&](std::int64_t i, int) { count_chunk(chunks[static_cast<std::size_t>(i)], grammar); });
  Counts total;
  total.lines = n_header_lines;
  for (auto& chunk : chunks) {
    chunk.start = total;
    total.lines += chunk.count.lines;
    total.rows += chunk.count.rows;
    total.features += chunk.count.features;
    total.labels += chunk.count.labels;
  }

  // Empty lines at the very end are not rows, unless the header counts them.
  std::int64_t n_rows = total.rows;
  for (const char* p = end; p > begin && n_rows > std::max<std::int64_t>(n_declared_rows, 0);) {
    if (p[-1] != '\n') break;
    --p;
    if (p > begin && p[-1] == '\r') --p;
    if (p > begin && p[-1] != '\n') break;
    if (!grammar.comments) --n_rows;
  }
  if (n_declared_rows >= 0 && n_rows != n_declared_rows)
    throw ParseError(1, "the header declares " + std::to_string(n_declared_rows) + " rows, but the file has " +
                            std::to_string(n_rows));

  allocate(out.X, total.rows, total.features);
  out.X_data.reset(new float[static_cast<std::size_t>(total.features)]);
  if (grammar.labels) allocate(out.Y, total.rows, total.labels);
  const IdRule feature_rule{grammar.column_kind, grammar.first_feature, out.n_features, features_from_header};
  const IdRule label_rule{"label", grammar.first_label, out.n_labels, labels_from_header};
  parallel_for(n_chunks, threads, control, [&](std::int64_t i, int) {
    RowParser(grammar, feature_rule, label_rule, out).parse_chunk(chunks[static_cast<std::size_t>(i)]);
  });

  std::int64_t max_feature = -1;
  std::int64_t max_label = -1;
  for (const auto& chunk : chunks) {
    if (chunk.error) throw *chunk.error;
    max_feature = std::max<std::int64_t>(max_feature, chunk.max_feature);
    max_label = std::max<std::int64_t>(max_label, chunk.max_label);
  }
  out.n_rows = n_rows;
  if (out.n_features < 0) out.n_features = max_feature + 1;
  if (out.n_labels < 0) out.n_labels = max_label + 1;
  return out;
}

}  // namespace umpteen
