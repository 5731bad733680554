#include "umpteen/parallel.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace umpteen {

namespace {
constexpr auto kPollEvery = std::chrono::milliseconds(50);
}

Control::Control(const CancelToken* token, std::function<void()> poll)
    : token_(token), poll_(std::move(poll)), last_poll_(std::chrono::steady_clock::now()) {}

void Control::poll_if_due() {
  if (!poll_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_poll_ < kPollEvery) return;
  last_poll_ = now;
  poll_();
}

int clamp_threads(std::int64_t n_items, int threads) noexcept {
  return static_cast<int>(std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(n_items, 1)));
}

void parallel_for(std::int64_t n_items, int threads, Control& control,
                  const std::function<void(std::int64_t, int)>& body) {
  std::atomic<std::int64_t> next{0};
  std::mutex mutex;  // guards what follows
  std::condition_variable helper_done;
  std::exception_ptr error;
  int n_running = 0;

  const auto work = [&](int worker) {
    try {
      while (!control.stopped()) {
        const std::int64_t item = next.fetch_add(1, std::memory_order_relaxed);
        if (item >= n_items) return;
        body(item, worker);
        if (worker == 0) control.poll_if_due();
      }
    } catch (...) {
      control.stop();
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  const auto help = [&](int worker) {
    work(worker);
    const std::lock_guard lock(mutex);
    --n_running;
    helper_done.notify_one();
  };

  const int n_workers = clamp_threads(n_items, threads);
  std::vector<std::thread> helpers;
  helpers.reserve(static_cast<std::size_t>(n_workers) - 1);
  for (int worker = 1; worker < n_workers; ++worker) {
    const std::lock_guard lock(mutex);
    try {
      helpers.emplace_back(help, worker);
      ++n_running;
    } catch (const std::system_error&) {
      break;  // the system has no thread to give; those already here do the work
    }
  }
  work(0);
  // Out of items, but a helper may be busy for long: go on polling, so that Ctrl-C is heard.
  for (std::unique_lock lock(mutex); n_running > 0;) {
    if (helper_done.wait_for(lock, kPollEvery, [&] { return n_running == 0; })) break;
    lock.unlock();
    try {
      control.poll_if_due();
    } catch (...) {
      control.stop();
      const std::lock_guard error_lock(mutex);
      if (!error) error = std::current_exception();
    }
    lock.lock();
  }
  for (auto& helper : helpers) helper.join();
  if (error) std::rethrow_exception(error);
  control.throw_if_stopped();
}

}  // namespace umpteen
