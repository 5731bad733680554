#include "umpteen/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "check.hpp"

using namespace umpteen;

namespace {

void every_item_runs_once() {
  for (const int threads : {1, 2, 7}) {
    std::vector<int> seen(1000, 0);
    std::atomic<bool> worker_in_range{true};
    Control control;
    parallel_for(1000, threads, control, [&](std::int64_t item, int worker) {
      if (worker < 0 || worker >= threads) worker_in_range = false;
      ++seen[static_cast<std::size_t>(item)];
    });
    CHECK(worker_in_range);
    CHECK(std::accumulate(seen.begin(), seen.end(), 0) == 1000);
    CHECK(*std::min_element(seen.begin(), seen.end()) == 1);
  }
}

void an_exception_reaches_the_caller() {
  Control control;
  std::atomic<int> n_run{0};
  const int many = 1 << 30;  // more than others can do before an exception, slow under sanitizers, has arrived
  CHECK_THROWS(parallel_for(many, 3, control,
                            [&](std::int64_t item, int) {
                              ++n_run;
                              if (item == 7) throw std::out_of_range("seven");
                            }),
               std::out_of_range);
  CHECK(n_run < many);
}

void a_token_stops_the_loop() {
  CancelToken token;
  Control control(&token);
  std::atomic<int> n_run{0};
  CHECK_THROWS(parallel_for(1 << 30, 2, control,
                            [&](std::int64_t, int) {
                              if (++n_run == 1000) token.cancel();
                            }),
               Cancelled);
  CHECK(n_run < 10000);
}

void poll_is_called_while_only_a_helper_is_busy() {
  // One item runs for long on the helper; the calling thread, out of items, must still notice the interrupt.
  Control control(nullptr, [] { throw std::runtime_error("interrupted"); });
  std::atomic<bool> helper_busy{false};
  const auto started = std::chrono::steady_clock::now();
  const auto body = [&](std::int64_t, int worker) {
    if (worker == 0)
      while (!helper_busy) std::this_thread::yield();
    helper_busy = true;
    while (worker == 1 && !control.stopped()) std::this_thread::yield();
  };
  CHECK_THROWS(parallel_for(2, 2, control, body), std::runtime_error);
  CHECK(std::chrono::steady_clock::now() - started < std::chrono::seconds(5));
}

}  // namespace

int main() {
  every_item_runs_once();
  an_exception_reaches_the_caller();
  a_token_stops_the_loop();
  poll_is_called_while_only_a_helper_is_busy();
  return report();
}
