#include "connector/socket_stream.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "connector/frame.h"

namespace baton {
namespace {

constexpr size_t kIovMax = 1024;
// A payload is allocated as it arrives, so that a header alone cannot make us allocate it all.
constexpr size_t kPayloadStep = size_t{1} << 20;
constexpr size_t kFdsMax = 16;

// Invalid when the process is out of descriptors, which peers and clients can bring about.
Fd NewEventFd() { return Fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

void Signal(const Fd& event) {
  const uint64_t one = 1;
  (void)!write(event.get(), &one, sizeof one);
}

void Drain(const Fd& event) {
  uint64_t count;
  (void)!read(event.get(), &count, sizeof count);
}

// Milliseconds to poll towards `deadline`, rounded up so that a wait never spins; 0 once passed.
int PollMs(Instant deadline, const Clock* clock) {
  const Duration left = std::min<Duration>(deadline - clock->Now(), kPollSlice);
  if (left <= Duration::zero()) return 0;
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

// Drops `n` moved bytes from the front of the ranges that start at *first.
void Advance(std::vector<iovec>* iov, size_t* first, size_t n) {
  while (*first < iov->size()) {
    iovec& v = (*iov)[*first];
    const size_t take = std::min(n, v.iov_len);
    v.iov_base = static_cast<char*>(v.iov_base) + take;
    v.iov_len -= take;
    n -= take;
    if (v.iov_len != 0) return;
    ++*first;
  }
}

iovec IovOf(void* p, size_t n) { return iovec{p, n}; }

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

std::string ErrnoText(int error) { return std::generic_category().message(error); }

SocketStream::SocketStream(Fd fd, std::string peer, const Clock* clock)
    : fd_(std::move(fd)), wake_(NewEventFd()), peer_(std::move(peer)), clock_(clock) {
  // A stream that cannot be interrupted would hang somebody.
  if (!wake_.valid()) Close();
}

Status SocketStream::Gone(const char* what, int error) const {
  if (!wake_.valid())
    return Reject(Reason::kPeerUnavailable,
                  peer_ + ": no descriptor left for the connection; raise the limit of open files");
  if (closed_.load()) return Reject(Reason::kPeerUnavailable, peer_ + ": link closed");
  return Reject(Reason::kPeerUnavailable,
                absl::StrCat(peer_, ": ", what, ": ",
                             error == 0 ? "the peer closed the connection" : ErrnoText(error)));
}

Status SocketStream::WaitFor(short events, Instant deadline) {
  for (;;) {
    if (closed_.load()) return Gone("wait", 0);
    if (clock_->Now() >= deadline)
      return Reject(Reason::kPeerUnavailable, peer_ + ": deadline passed while waiting");
    pollfd p{fd_.get(), events, 0};
    const int n = poll(&p, 1, PollMs(deadline, clock_));
    if (n < 0 && errno != EINTR) return Gone("poll", errno);
    if (n > 0) return absl::OkStatus();  // errors show in the call that follows
  }
}

Status SocketStream::WriteAll(std::vector<iovec> iov, Instant deadline, uint64_t* done) {
  size_t first = 0;
  Advance(&iov, &first, 0);
  while (first < iov.size()) {
    msghdr msg{};
    msg.msg_iov = &iov[first];
    msg.msg_iovlen = std::min(kIovMax, iov.size() - first);
    const ssize_t n = sendmsg(fd_.get(), &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return Gone("send", errno);
      BATON_RETURN_IF_ERROR(WaitFor(POLLOUT, deadline));
      continue;
    }
    if (done != nullptr) *done += static_cast<uint64_t>(n);
    Advance(&iov, &first, static_cast<size_t>(n));
    // A peer that always reads a little must not outlive the deadline either.
    if (first < iov.size() && clock_->Now() >= deadline)
      return Reject(Reason::kPeerUnavailable, peer_ + ": deadline passed while sending");
  }
  return absl::OkStatus();
}

Status SocketStream::ReadAll(std::vector<iovec> iov, Instant deadline, uint64_t* done) {
  size_t first = 0;
  Advance(&iov, &first, 0);
  while (first < iov.size()) {
    const int count = static_cast<int>(std::min(kIovMax, iov.size() - first));
    const ssize_t n = readv(fd_.get(), &iov[first], count);
    if (n == 0) return Gone("receive", 0);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return Gone("receive", errno);
      BATON_RETURN_IF_ERROR(WaitFor(POLLIN, deadline));
      continue;
    }
    if (done != nullptr) *done += static_cast<uint64_t>(n);
    Advance(&iov, &first, static_cast<size_t>(n));
    if (first < iov.size() && clock_->Now() >= deadline)
      return Reject(Reason::kPeerUnavailable, peer_ + ": deadline passed while receiving");
  }
  return absl::OkStatus();
}

Status SocketStream::SendFrame(const Frame& frame, Instant deadline) {
  if (frame.payload.size() > kFramePayloadMax)
    return absl::InvalidArgumentError(
        absl::StrCat("frame of ", frame.payload.size(), " bytes, at most ", kFramePayloadMax));
  FrameHeaderBytes header = EncodeFrameHeader(frame);
  return WriteAll({IovOf(header.data(), header.size()),
                   IovOf(const_cast<uint8_t*>(frame.payload.data()), frame.payload.size())},
                  deadline);
}

StatusOr<Frame> SocketStream::ReceiveFrame(Instant deadline) {
  FrameHeaderBytes bytes;
  BATON_RETURN_IF_ERROR(ReadAll({IovOf(bytes.data(), bytes.size())}, deadline));
  BATON_ASSIGN_OR_RETURN(const FrameHeader header, DecodeFrameHeader(bytes));
  Frame frame{header.type, {}};
  while (frame.payload.size() < header.payload_bytes) {
    const size_t old = frame.payload.size();
    const size_t step = std::min<size_t>(kPayloadStep, header.payload_bytes - old);
    frame.payload.resize(old + step);
    BATON_RETURN_IF_ERROR(ReadAll({IovOf(frame.payload.data() + old, step)}, deadline));
  }
  BATON_RETURN_IF_ERROR(CheckFramePayload(header, AsBytes(frame.payload)));
  return frame;
}

Status SocketStream::SendFrameWithFds(const Frame& frame,
                                      std::span<const int> fds,
                                      Instant deadline) {
  BATON_CHECK(!fds.empty() && fds.size() <= kFdsMax);
  FrameHeaderBytes header = EncodeFrameHeader(frame);
  iovec first = IovOf(header.data(), 1);
  alignas(cmsghdr) char control[CMSG_SPACE(kFdsMax * sizeof(int))] = {};
  msghdr msg{};
  msg.msg_iov = &first;
  msg.msg_iovlen = 1;
  msg.msg_control = control;
  msg.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
  cmsghdr* c = CMSG_FIRSTHDR(&msg);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
  while (sendmsg(fd_.get(), &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return Gone("send descriptors", errno);
    BATON_RETURN_IF_ERROR(WaitFor(POLLOUT, deadline));
  }
  return WriteAll({IovOf(header.data() + 1, header.size() - 1),
                   IovOf(const_cast<uint8_t*>(frame.payload.data()), frame.payload.size())},
                  deadline);
}

StatusOr<Frame> SocketStream::ReceiveFrameWithFds(std::vector<Fd>* fds, Instant deadline) {
  FrameHeaderBytes bytes;
  iovec first = IovOf(bytes.data(), 1);
  alignas(cmsghdr) char control[CMSG_SPACE(kFdsMax * sizeof(int))] = {};
  msghdr msg{};
  ssize_t n = -1;
  while (n <= 0) {
    BATON_RETURN_IF_ERROR(WaitFor(POLLIN, deadline));
    msg = msghdr{};
    msg.msg_iov = &first;
    msg.msg_iovlen = 1;
    msg.msg_control = control;
    msg.msg_controllen = sizeof control;
    n = recvmsg(fd_.get(), &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n == 0) return Gone("receive", 0);
    if (n < 0 && errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)
      return Gone("receive descriptors", errno);
  }
  for (cmsghdr* c = CMSG_FIRSTHDR(&msg); c != nullptr; c = CMSG_NXTHDR(&msg, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      fds->emplace_back(fd);
    }
  }
  if ((msg.msg_flags & MSG_CTRUNC) != 0)
    return Reject(Reason::kMalformed, peer_ + ": more descriptors than a frame may carry");
  BATON_RETURN_IF_ERROR(ReadAll({IovOf(bytes.data() + 1, bytes.size() - 1)}, deadline));
  BATON_ASSIGN_OR_RETURN(const FrameHeader header, DecodeFrameHeader(bytes));
  if (header.payload_bytes > kPayloadStep)
    return Reject(Reason::kMalformed, peer_ + ": frame with descriptors is too large");
  Frame frame{header.type, std::vector<uint8_t>(header.payload_bytes)};
  BATON_RETURN_IF_ERROR(ReadAll({IovOf(frame.payload.data(), frame.payload.size())}, deadline));
  BATON_RETURN_IF_ERROR(CheckFramePayload(header, AsBytes(frame.payload)));
  return frame;
}

Link::Event SocketStream::WaitReadable(Instant deadline) {
  for (;;) {
    pollfd p[2] = {{fd_.get(), POLLIN | POLLRDHUP, 0}, {wake_.get(), POLLIN, 0}};
    const int n = poll(p, 2, PollMs(deadline, clock_));
    if (n > 0 && p[1].revents != 0) {
      Drain(wake_);
      return Link::Event::kInterrupted;
    }
    if (n > 0 || closed_.load()) return Link::Event::kReadable;
    if (clock_->Now() >= deadline) return Link::Event::kDeadline;
  }
}

void SocketStream::Interrupt() { Signal(wake_); }

void SocketStream::Close() {
  // shutdown, not close: the descriptor stays valid for a thread that is inside a call.
  if (!closed_.exchange(true)) shutdown(fd_.get(), SHUT_RDWR);
}

Status FinishConnect(int fd,
                     const std::string& peer,
                     Instant deadline,
                     const Clock* clock,
                     const CancelToken& cancel) {
  const Fd wake = NewEventFd();
  if (!wake.valid())
    return Reject(Reason::kPeerUnavailable, absl::StrCat(peer, ": connect: ", ErrnoText(errno)));
  const CancelCallback on_cancel(cancel, [&wake] { Signal(wake); });
  for (;;) {
    if (cancel.stop_requested()) return Reject(Reason::kCancelled, peer + ": connect cancelled");
    pollfd p[2] = {{fd, POLLOUT, 0}, {wake.get(), POLLIN, 0}};
    const int n = poll(p, 2, PollMs(deadline, clock));
    if (n > 0 && p[0].revents != 0) break;
    if (n <= 0 && clock->Now() >= deadline)
      return Reject(Reason::kPeerUnavailable, peer + ": deadline passed while connecting");
  }
  int error = 0;
  socklen_t len = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0) error = errno;
  if (error != 0)
    return Reject(Reason::kPeerUnavailable, absl::StrCat(peer, ": connect: ", ErrnoText(error)));
  return absl::OkStatus();
}

AcceptLoop::AcceptLoop(Fd listening, std::function<void()> let_go)
    : listening_(std::move(listening)), wake_(NewEventFd()), let_go_(std::move(let_go)) {
  BATON_CHECK(wake_.valid());  // at start, before there are peers
}

StatusOr<Fd> AcceptLoop::Next() {
  for (;;) {
    if (closed_.load()) return absl::UnavailableError("listener closed");
    pollfd p[2] = {{listening_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (poll(p, 2, -1) <= 0 || p[1].revents != 0) continue;
    Fd fd(accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) return fd;
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      LogError(absl::StrCat("hand-off listener cannot accept: ", ErrnoText(errno),
                            "; raise the limit of open files"));
      let_go_();
      pollfd w{wake_.get(), POLLIN, 0};
      poll(&w, 1, 100);  // the connection stays queued, so poll would spin
    }
  }
}

void AcceptLoop::Close() {
  closed_.store(true);
  Signal(wake_);
}

}  // namespace baton
