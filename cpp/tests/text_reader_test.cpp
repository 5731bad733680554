#include "umpteen/text_reader.hpp"

#include <cmath>
#include <string>

#include "check.hpp"
#include "umpteen/text_writer.hpp"

using namespace umpteen;

namespace {

ParsedText parse(const std::string& text, const TextGrammar& grammar = {}, int threads = 2) {
  Control control;
  return parse_text(text, grammar, threads, control);
}

std::int64_t error_line(const std::string& text) {
  try {
    parse(text);
  } catch (const ParseError& e) {
    return e.line;
  }
  return 0;
}

void reads_rows() {
  const ParsedText parsed = parse("2 5 4\n2,0 4:1.25 1:0.5\n 0:2\n");
  CHECK(parsed.n_rows == 2 && parsed.n_features == 5 && parsed.n_labels == 4 && parsed.has_header);
  CHECK(parsed.Y.nnz == 2 && parsed.Y.indices[0] == 0 && parsed.Y.indices[1] == 2);
  CHECK(parsed.X.nnz == 3 && parsed.X.indices[0] == 1 && parsed.X.indices[1] == 4 && parsed.X.indices[2] == 0);
  CHECK(parsed.X_data[0] == 0.5F && parsed.X_data[1] == 1.25F && parsed.X_data[2] == 2.0F);
  CHECK(parsed.X.indptr[0] == 0 && parsed.X.indptr[1] == 2 && parsed.X.indptr[2] == 3);
}

void names_the_line_of_an_error() {
  CHECK(error_line("0 1:1\n0 1:x\n0 1:y\n") == 2);
  CHECK(error_line("1 2 3\n0 5:1\n") == 2);
  CHECK(error_line("3 2 3\n0 1:1\n") == 1);
  CHECK(error_line("0 1:1\n") == 0);
  std::string text;
  for (int i = 0; i < 500000; ++i) text += i == 400000 ? "0 1:bad\n" : "0 1:1\n";
  CHECK(error_line(text) == 400001);
}

void numbers() {
  const auto number = [](const std::string& text) {
    float value = -7;
    const char* end = parse_float(text.data(), text.data() + text.size(), value);
    return end == text.data() + text.size() ? value : NAN;
  };
  CHECK(number("0.1") == 0.1F);
  CHECK(number("-2.5e3") == -2500.0F);
  CHECK(number("16777217") == 16777216.0F);
  CHECK(number("1.00000005960464477539062500000001") == std::nextafter(1.0F, 2.0F));
  CHECK(number("1e-50") == 0.0F);
  CHECK(std::isinf(number("1e50")) && number("-1e50") < 0);
  CHECK(std::isnan(number("nan")) && std::isnan(number("inf")) && std::isnan(number("+-1")) &&
        std::isnan(number("")));
}

void writes_what_it_reads() {
  const std::string text = "0,2 1:0.5 4:1.25\n 0:2\n3\n \n";
  const ParsedText parsed = parse(text);
  const CsrView X{parsed.n_rows, 5, parsed.X.indptr.get(), parsed.X.indices.get(), parsed.X_data.get()};
  const CsrView Y{parsed.n_rows, 4, parsed.Y.indptr.get(), parsed.Y.indices.get(), nullptr};
  CHECK(parsed.n_rows == 4);
  CHECK(format_rows(X, Y, 0, 4, {}) == text);
}

}  // namespace

int main() {
  reads_rows();
  names_the_line_of_an_error();
  numbers();
  writes_what_it_reads();
  return report();
}
