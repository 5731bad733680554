#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "common.hpp"

namespace umpteen {

namespace {

constexpr std::int64_t kUnit = 1'000'000;  // scores are written with six digits

/// A number from 0 to 1, given in millionths, without zeros at its end.
void append_score(std::string& out, std::int64_t millionths) {
  if (millionths >= kUnit) {
    out += "1.0";
    return;
  }
  char digits[8];
  const auto end = std::to_chars(digits, digits + sizeof digits, kUnit + millionths).ptr;  // 1 and six digits
  std::string_view shown(digits + 1, static_cast<std::size_t>(end - digits) - 1);
  while (shown.size() > 1 && shown.back() == '0') shown.remove_suffix(1);
  out += "0.";
  out += shown;
}

/// For each row a list in JSON. The interpreter is held: there is too little to do to let go of it.
nb::list write_suggestions(const Matrix<std::int32_t>& which, const Matrix<float>& scores, const nb::list& begins,
                           const Vector<std::int64_t>& most, const Vector<double>& least) {
  const std::size_t n_rows = which.shape(0);
  const std::size_t width = which.shape(1);
  if (scores.shape(0) != n_rows || scores.shape(1) != width || most.size() != n_rows || least.size() != n_rows)
    throw std::invalid_argument("labels, scores and limits must have the same number of rows");
  std::vector<std::string_view> texts;
  texts.reserve(begins.size());
  for (const nb::handle begin : begins) {
    const nb::bytes text = nb::cast<nb::bytes>(begin);
    texts.emplace_back(text.c_str(), text.size());
  }
  nb::list rows;
  std::string out;
  for (std::size_t row = 0; row < n_rows; ++row) {
    out = "[";
    const auto last = static_cast<std::size_t>(std::clamp<std::int64_t>(most.data()[row], 0, std::int64_t(width)));
    for (std::size_t i = row * width; i < row * width + last; ++i) {
      const std::int32_t label = which.data()[i];
      if (label < 0) continue;
      if (static_cast<std::size_t>(label) >= texts.size()) throw std::out_of_range("a label has no text");
      const float given = scores.data()[i];
      const double score = given > 0 ? std::min(double{given}, 1.0) : 0.0;  // no NaN either
      const auto millionths = static_cast<std::int64_t>(std::nearbyint(score * double(kUnit)));
      if (static_cast<double>(millionths) / double(kUnit) < least.data()[row]) continue;
      if (out.size() > 1) out += ',';
      out += texts[static_cast<std::size_t>(label)];
      append_score(out, millionths);
      out += '}';
    }
    out += ']';
    rows.append(nb::bytes(out.data(), out.size()));
  }
  return rows;
}

}  // namespace

void register_answers(nb::module_& m) {
  m.def(
      "write_suggestions", &write_suggestions, nb::arg("which").noconvert(), nb::arg("scores").noconvert(),
      nb::arg("begins"), nb::arg("most").noconvert(), nb::arg("least").noconvert(),
      "Rows of suggestions as JSON lists, each row's first `most` with a score of `least` or more. begins[which] is "
      "a suggestion's text up to its score; which is -1 for none.");
}

}  // namespace umpteen
