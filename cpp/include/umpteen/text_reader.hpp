#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "umpteen/parallel.hpp"

namespace umpteen {

/// What a line of text may look like. One grammar serves the formats of this field:
///
///     file    = [header] row*
///     header  = rows SP features SP labels          (rows SP columns, where rows have no label list)
///     row     = [label ("," label)*] (SP feature ":" value)* [SP] ["#" comment] EOL
///
/// SP is one or more spaces or tabs, EOL is \n or \r\n, ids are decimal and not negative, values are finite
/// decimals. A row without labels starts with SP, or with its first feature. Labels and features may come in
/// any order and are sorted here; one that comes twice in a row is an error. Empty lines at the end of the
/// file are not rows.
struct TextGrammar {
  bool labels = true;     ///< rows start with a label list
  bool header = true;     ///< a first line of plain integers is a header
  bool comments = false;  ///< "#" starts a comment; lines that are empty or all comment are not rows (svmlight)
  std::int32_t first_feature = 0;  ///< the id of the first feature in the file: 0 or 1
  std::int32_t first_label = 0;    ///< the id of the first label in the file: 0 or 1
  std::int64_t n_features = -1;    ///< where >= 0, ids must be below it; else the header says, else the largest id
  std::int64_t n_labels = -1;
  const char* column_kind = "feature";  ///< what messages call the ids before a ":"
};

struct SparsePattern {
  std::unique_ptr<std::int64_t[]> indptr;
  std::unique_ptr<std::int32_t[]> indices;
  std::int64_t nnz = 0;
};

/// A parsed file. X and Y have n_rows rows, sorted columns, no duplicates.
struct ParsedText {
  std::int64_t n_rows = 0;
  std::int64_t n_features = 0;
  std::int64_t n_labels = 0;
  bool has_header = false;
  SparsePattern X;
  std::unique_ptr<float[]> X_data;
  SparsePattern Y;
};

/// A line that breaks the grammar. `line` counts from 1; what() names the rule and the value.
struct ParseError : std::runtime_error {
  ParseError(std::int64_t line_, const std::string& message) : std::runtime_error(message), line(line_) {}
  std::int64_t line;
};

/// Parses a whole file held in memory. Two passes, both parallel: the first counts, so that the second writes
/// into arrays of the final size and nothing is copied or grown. Of several errors the one on the lowest line
/// is thrown.
ParsedText parse_text(std::string_view text, const TextGrammar& grammar, int threads, Control& control);

/// The float32 nearest to the decimal number at `begin`, correctly rounded. Returns the first byte after it,
/// or null if there is no number there. Overflow gives infinity. Reads "nan" and "inf" as no number.
const char* parse_float(const char* begin, const char* end, float& value) noexcept;

}  // namespace umpteen
