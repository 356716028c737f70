// A connected stream socket with deadlines on the project's clock: whole frames, whole byte ranges,
// and an interrupt from other threads. Shared by tcp, shm and ucx; not a Link by itself.
// Thread rule: one thread; Close and Interrupt from any.
#ifndef BATON_CONNECTOR_SOCKET_STREAM_H_
#define BATON_CONNECTOR_SOCKET_STREAM_H_

#include <sys/uio.h>

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "connector/connector.h"

namespace baton {

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Fd& operator=(Fd&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Longest single poll while waiting for a deadline. Deadlines are on an injected clock, which may
// be a simulated one that the kernel knows nothing of; this bounds how late it is noticed. Only
// conversations in progress wait this way.
inline constexpr Duration kPollSlice = std::chrono::milliseconds(50);

// "Connection refused" for `error` (an errno).
std::string ErrnoText(int error);

class SocketStream {
 public:
  // `fd`: connected and non-blocking. `peer` is for messages. Out of descriptors: closed from the
  // beginning.
  SocketStream(Fd fd, std::string peer, const Clock* clock);

  Status SendFrame(const Frame& frame, Instant deadline);
  StatusOr<Frame> ReceiveFrame(Instant deadline);
  // As SendFrame, passing `fds` (1..16) along with the first byte. Unix sockets only.
  Status SendFrameWithFds(const Frame& frame, std::span<const int> fds, Instant deadline);
  // As ReceiveFrame; descriptors that came along, or kMalformed if any were lost.
  StatusOr<Frame> ReceiveFrameWithFds(std::vector<Fd>* fds, Instant deadline);

  // All bytes of `iov`, which is consumed. *done counts bytes moved, also on error.
  Status WriteAll(std::vector<iovec> iov, Instant deadline, uint64_t* done = nullptr);
  Status ReadAll(std::vector<iovec> iov, Instant deadline, uint64_t* done = nullptr);

  Link::Event WaitReadable(Instant deadline);
  void Interrupt();
  void Close();
  bool closed() const { return closed_.load(); }
  int fd() const { return fd_.get(); }  // to poll beside other descriptors
  const std::string& peer() const { return peer_; }
  const Clock* clock() const { return clock_; }

 private:
  Status WaitFor(short events, Instant deadline);
  Status Gone(const char* what, int error) const;

  Fd fd_;
  Fd wake_;  // eventfd
  std::string peer_;
  const Clock* clock_;
  std::atomic<bool> closed_{false};
};

// Implements the Link part of `Interface` (Link or SourceLink) over a SocketStream.
template <class Interface>
class SocketLink : public Interface {
 public:
  explicit SocketLink(std::unique_ptr<SocketStream> stream) : stream_(std::move(stream)) {}
  Status Send(const Frame& frame, Instant deadline) override {
    return stream_->SendFrame(frame, deadline);
  }
  StatusOr<Frame> Receive(Instant deadline) override { return stream_->ReceiveFrame(deadline); }
  Link::Event WaitReadable(Instant deadline) override { return stream_->WaitReadable(deadline); }
  void Interrupt() override { stream_->Interrupt(); }
  void Close() override { stream_->Close(); }
  std::string peer() const override { return stream_->peer(); }
  SocketStream* stream() { return stream_.get(); }

 private:
  std::unique_ptr<SocketStream> stream_;
};

// Waits for a connecting non-blocking `fd`; sets SO_ERROR's text on failure.
Status FinishConnect(int fd,
                     const std::string& peer,
                     Instant deadline,
                     const Clock* clock,
                     const CancelToken& cancel);

// A bound, listening, non-blocking socket and the way to stop waiting on it.
class AcceptLoop {
 public:
  // `let_go` may close descriptors that nobody needs; called when the process has none left.
  explicit AcceptLoop(
      Fd listening, std::function<void()> let_go = [] {});
  // The next connection (non-blocking, close-on-exec). Unavailable once closed. Sleeps and retries
  // when the process is out of descriptors.
  StatusOr<Fd> Next();
  void Close();
  int fd() const { return listening_.get(); }

 private:
  Fd listening_;
  Fd wake_;
  const std::function<void()> let_go_;
  std::atomic<bool> closed_{false};
};

}  // namespace baton

#endif  // BATON_CONNECTOR_SOCKET_STREAM_H_
