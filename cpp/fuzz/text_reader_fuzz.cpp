// Any bytes, under any grammar: an error or a matrix, the same on any number of threads, and the same again when it
// is written and read. Built with -DUMPTEEN_FUZZ=ON by clang; tests/fuzz/ runs it.

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "umpteen/text_reader.hpp"
#include "umpteen/text_writer.hpp"

namespace {

using namespace umpteen;

#define REQUIRE(condition)                                         \
  do {                                                             \
    if (!(condition)) {                                            \
      std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
      std::abort();                                                \
    }                                                              \
  } while (false)

struct Outcome {
  ParsedText parsed;
  std::string message;
  std::int64_t line = 0;
};

Outcome read(std::string_view text, const TextGrammar& grammar, int threads) {
  Outcome outcome;
  Control control;
  try {
    outcome.parsed = parse_text(text, grammar, threads, control);
  } catch (const ParseError& e) {
    outcome.line = e.line;
    outcome.message = e.what();
    REQUIRE(e.line >= 1 && !outcome.message.empty());
  }
  return outcome;
}

void check_pattern(const SparsePattern& pattern, std::int64_t n_rows, std::int64_t n_columns) {
  REQUIRE(pattern.indptr[0] == 0 && pattern.indptr[n_rows] == pattern.nnz);
  for (std::int64_t i = 0; i < n_rows; ++i) {
    REQUIRE(pattern.indptr[i] <= pattern.indptr[i + 1]);
    for (std::int64_t k = pattern.indptr[i]; k < pattern.indptr[i + 1]; ++k) {
      REQUIRE(pattern.indices[k] >= 0 && pattern.indices[k] < n_columns);
      REQUIRE(k == pattern.indptr[i] || pattern.indices[k] > pattern.indices[k - 1]);
    }
  }
}

void require_same(const SparsePattern& a, const SparsePattern& b, std::int64_t n_rows) {
  REQUIRE(a.nnz == b.nnz);
  REQUIRE(std::memcmp(a.indptr.get(), b.indptr.get(), sizeof(std::int64_t) * (n_rows + 1)) == 0);
  REQUIRE(a.nnz == 0 || std::memcmp(a.indices.get(), b.indices.get(), sizeof(std::int32_t) * a.nnz) == 0);
}

void require_same(const ParsedText& a, const ParsedText& b, bool labels) {
  REQUIRE(a.n_rows == b.n_rows && a.n_features == b.n_features);
  require_same(a.X, b.X, a.n_rows);
  REQUIRE(a.X.nnz == 0 || std::memcmp(a.X_data.get(), b.X_data.get(), sizeof(float) * a.X.nnz) == 0);
  if (!labels) return;
  REQUIRE(a.n_labels == b.n_labels);
  require_same(a.Y, b.Y, a.n_rows);
}

CsrView view(const SparsePattern& pattern, const float* data, std::int64_t n_rows, std::int64_t n_columns) {
  CsrView csr{};
  csr.n_rows = n_rows;
  csr.n_cols = n_columns;
  csr.indptr = pattern.indptr.get();
  csr.indices = pattern.indices.get();
  csr.data = data;
  return csr;
}

void check_round_trip(const ParsedText& parsed, TextGrammar grammar) {
  grammar.header = false;
  grammar.comments = false;
  grammar.n_features = parsed.n_features;
  grammar.n_labels = parsed.n_labels;
  const CsrView X = view(parsed.X, parsed.X_data.get(), parsed.n_rows, parsed.n_features);
  const CsrView Y = grammar.labels ? view(parsed.Y, nullptr, parsed.n_rows, parsed.n_labels) : CsrView{};
  const std::string text =
      format_rows(X, Y, 0, parsed.n_rows, {grammar.labels, grammar.first_feature, grammar.first_label});
  const Outcome again = read(text, grammar, 1);
  REQUIRE(again.line == 0);
  require_same(again.parsed, parsed, grammar.labels);
}

// The standard library rounds correctly too, and knows fewer spellings.
void check_number(std::string_view text) {
  float mine = -7;
  const char* end = parse_float(text.data(), text.data() + text.size(), mine);
  REQUIRE(end == nullptr || (end > text.data() && end <= text.data() + text.size() && !std::isnan(mine)));
  if (text.empty() || text[0] == '+') return;
  float theirs = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), theirs);
  if (error == std::errc{} && std::isfinite(theirs) && end == rest) REQUIRE(std::memcmp(&mine, &theirs, 4) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::uint8_t how = data[0];
  TextGrammar grammar;
  grammar.labels = (how & 1) == 0;
  grammar.header = (how & 2) == 0;
  grammar.comments = (how & 4) != 0;
  grammar.first_feature = (how & 8) != 0;
  grammar.first_label = (how & 16) != 0;
  grammar.n_features = (how & 32) != 0 ? 1000 : -1;
  grammar.n_labels = (how & 64) != 0 ? 100 : -1;
  // In memory of its own, so that a read past the end is seen.
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome one = read(text, grammar, 1);
  const Outcome three = read(text, grammar, 3);
  REQUIRE(one.line == three.line && one.message == three.message);
  if (one.line == 0) {
    const ParsedText& parsed = one.parsed;
    check_pattern(parsed.X, parsed.n_rows, parsed.n_features);
    if (grammar.labels) check_pattern(parsed.Y, parsed.n_rows, parsed.n_labels);
    for (std::int64_t k = 0; k < parsed.X.nnz; ++k) REQUIRE(std::isfinite(parsed.X_data[k]));
    require_same(parsed, three.parsed, grammar.labels);
    check_round_trip(parsed, grammar);
  }
  check_number(text.substr(0, text.find_first_of(" \n:,")));
  return 0;
}
