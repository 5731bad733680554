#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>

namespace umpteen {

/// Thrown inside a kernel whose caller asked it to stop.
struct Cancelled : std::runtime_error {
  Cancelled() : std::runtime_error("cancelled") {}
};

/// A flag another thread may raise to stop a kernel.
class CancelToken {
 public:
  void cancel() noexcept { flag_.store(true, std::memory_order_relaxed); }
  bool cancelled() const noexcept { return flag_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> flag_{false};
};

/// How one kernel call is stopped: by a token, or by `poll`, which runs on the calling thread about every 50
/// ms and may throw (the Python binding looks for Ctrl-C there). Kernels whose work items may be long call
/// `check_in` inside them.
class Control {
 public:
  explicit Control(const CancelToken* token = nullptr, std::function<void()> poll = {});

  bool stopped() const noexcept {
    return stopped_.load(std::memory_order_relaxed) || (token_ != nullptr && token_->cancelled());
  }
  void stop() noexcept { stopped_.store(true, std::memory_order_relaxed); }
  void throw_if_stopped() const {
    if (stopped()) throw Cancelled();
  }
  /// Calls `poll` if it is due. Only the thread that made this object may call it.
  void poll_if_due();
  /// To be called now and then inside a long work item.
  void check_in(int worker) {
    if (worker == 0) poll_if_due();
    throw_if_stopped();
  }

 private:
  const CancelToken* token_;
  std::function<void()> poll_;
  std::chrono::steady_clock::time_point last_poll_;
  std::atomic<bool> stopped_{false};
};

/// Runs body(item, worker) for every item in [0, n_items), items handed out in order, on `threads` threads of
/// which the caller is one (worker 0). Threads are made for this call and joined before it returns: nothing
/// is left behind that a fork could break, and one thread means no thread is started. The first exception
/// stops the rest and is rethrown; a raised token gives Cancelled. Results must depend on the item only,
/// never on the worker.
void parallel_for(std::int64_t n_items, int threads, Control& control,
                  const std::function<void(std::int64_t item, int worker)>& body);

/// The number of threads parallel_for will use at most: scratch space is indexed by worker.
int clamp_threads(std::int64_t n_items, int threads) noexcept;

}  // namespace umpteen
