#include <nanobind/nanobind.h>

namespace umpteen {
void register_answers(nanobind::module_& m);
void register_parallel(nanobind::module_& m);
void register_terms(nanobind::module_& m);
void register_text(nanobind::module_& m);
void register_tfidf(nanobind::module_& m);
void register_rows(nanobind::module_& m);
void register_label_tree(nanobind::module_& m);
void register_linear(nanobind::module_& m);
void register_newton(nanobind::module_& m);
void register_pd(nanobind::module_& m);
void register_dual(nanobind::module_& m);
void register_forest(nanobind::module_& m);
void register_embedding(nanobind::module_& m);
}  // namespace umpteen

NB_MODULE(_native, m) {
  // A model that lives until the program ends is no leak; the warning would only alarm users.
  nanobind::set_leak_warnings(false);
  m.doc() = "The kernels of umpteen. Private: use the functions and classes of the package.";
  umpteen::register_answers(m);
  umpteen::register_parallel(m);
  umpteen::register_terms(m);
  umpteen::register_text(m);
  umpteen::register_tfidf(m);
  umpteen::register_rows(m);
  umpteen::register_linear(m);
  umpteen::register_label_tree(m);
  umpteen::register_newton(m);
  umpteen::register_pd(m);
  umpteen::register_dual(m);
  umpteen::register_forest(m);
  umpteen::register_embedding(m);
}
