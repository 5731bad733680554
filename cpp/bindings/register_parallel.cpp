#include <nanobind/stl/function.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "common.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

void register_parallel(nb::module_& m) {
  nb::class_<CancelToken>(m, "CancelToken", "A flag another thread may raise to stop a kernel.")
      .def(nb::init<>())
      .def("cancel", &CancelToken::cancel)
      .def_prop_ro("cancelled", &CancelToken::cancelled);
  nb::exception<Cancelled>(m, "Cancelled", PyExc_RuntimeError);

  m.def(
      "parallel_for",
      [](std::int64_t n_items, int threads, const nb::callable& body, const CancelToken* token) {
        Control control = make_control(token);
        const nb::gil_scoped_release release;
        parallel_for(n_items, threads, control, [&](std::int64_t item, int worker) {
          const nb::gil_scoped_acquire gil;
          body(item, worker);
        });
      },
      nb::arg("n_items"), nb::arg("threads"), nb::arg("body"), nb::arg("token") = nb::none(),
      "Calls body(item, worker) for every item: the loop all kernels run on, for tests.");

  m.def("available_simd", &available_simd, "The instruction sets this machine can run, plainest first.");
  m.def("simd", [] { return std::string(kernels().name); }, "The instruction set in use.");
  m.def("use_simd", &use_simd, nb::arg("name"), "Switches the instruction set, for tests and measurements.");
}

}  // namespace umpteen
