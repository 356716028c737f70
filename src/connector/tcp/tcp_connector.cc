#include "connector/tcp/tcp_connector.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "connector/frame.h"
#include "connector/grant_table.h"
#include "connector/socket_stream.h"

namespace baton {
namespace {

constexpr int kSocketBufferBytes = 8 << 20;  // asked for; the kernel caps it at its own limit
constexpr int kBacklog = 128;
// Ranges and bytes announced by one kData: large enough that the table costs nothing, small enough
// that a refused part is noticed early.
constexpr size_t kDataRangesMax = 512;
constexpr uint64_t kDataBytesMax = uint64_t{32} << 20;

struct HostPort {
  std::string host;
  std::string port;
};

StatusOr<HostPort> ParseHostPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  HostPort out;
  if (colon != std::string::npos) {
    out.host = address.substr(0, colon);
    out.port = address.substr(colon + 1);
  }
  if (out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']')
    out.host = out.host.substr(1, out.host.size() - 2);
  uint32_t port = 0;
  if (out.host.empty() || !absl::SimpleAtoi(out.port, &port) || port > 65535)
    return absl::InvalidArgumentError("tcp endpoint '" + address +
                                      "' is not HOST:PORT, for example tcp:127.0.0.1:9001");
  return out;
}

struct AddressList {
  addrinfo* head = nullptr;
  ~AddressList() {
    if (head != nullptr) freeaddrinfo(head);
  }
};

Status Lookup(const std::string& address, bool passive, AddressList* out) {
  BATON_ASSIGN_OR_RETURN(const HostPort hp, ParseHostPort(address));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  const int rc = getaddrinfo(hp.host.c_str(), hp.port.c_str(), &hints, &out->head);
  if (rc != 0) return Reject(Reason::kPeerUnavailable, "tcp:" + address + ": " + gai_strerror(rc));
  return absl::OkStatus();
}

void Tune(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof kSocketBufferBytes);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kSocketBufferBytes, sizeof kSocketBufferBytes);
}

// A type of its own, so that Pull can tell it from other links over sockets.
class TcpLink final : public SocketLink<Link> {
 public:
  using SocketLink<Link>::SocketLink;
};

class TcpSourceLink final : public SocketLink<SourceLink> {
 public:
  TcpSourceLink(std::unique_ptr<SocketStream> stream, std::vector<SourceRegion> regions)
      : SocketLink<SourceLink>(std::move(stream)), grants_(std::move(regions)) {}

  StatusOr<std::vector<ExtentAddress>> Grant(std::span<const GrantedPart> parts) override {
    return grants_.Grant(parts);
  }
  // This thread is the only one that sends, and the kernel has copied whatever a send returned
  // for, so emptying the table is enough.
  void RevokeAll() override { grants_.RevokeAll(); }

  StatusOr<Frame> ServeUntilFrame(Instant deadline) override {
    for (;;) {
      BATON_ASSIGN_OR_RETURN(Frame frame, Receive(deadline));
      if (frame.type != FrameType::kRead) return frame;
      Status served = Serve(frame, deadline);
      if (!served.ok()) {
        Send(EncodeError(served), deadline).IgnoreError();
        return served;
      }
    }
  }

 private:
  Status Serve(const Frame& read, Instant deadline) {
    BATON_ASSIGN_OR_RETURN(const std::vector<PartRange> ranges,
                           DecodeRanges(FrameType::kRead, read));
    std::vector<iovec> iov;
    size_t begin = 0;
    uint64_t bytes = 0;
    // The table of each kData is sent just before its bytes; slot 0 and 1 of iov are for it.
    for (size_t i = 0; i < ranges.size(); ++i) {
      BATON_ASSIGN_OR_RETURN(const ByteSpan part, grants_.Resolve(ranges[i]));
      iov.push_back({const_cast<std::byte*>(part.data()), part.size()});
      bytes += part.size();
      const bool last = i + 1 == ranges.size();
      if (last || iov.size() == kDataRangesMax || bytes >= kDataBytesMax) {
        const std::span<const PartRange> table(&ranges[begin], i + 1 - begin);
        BATON_RETURN_IF_ERROR(SendData(table, std::move(iov), deadline));
        iov.clear();
        begin = i + 1;
        bytes = 0;
      }
    }
    return absl::OkStatus();
  }

  Status SendData(std::span<const PartRange> table, std::vector<iovec> bulk, Instant deadline) {
    Frame frame = EncodeRanges(FrameType::kData, table);
    FrameHeaderBytes header = EncodeFrameHeader(frame);
    std::vector<iovec> iov;
    iov.reserve(bulk.size() + 2);
    iov.push_back({header.data(), header.size()});
    iov.push_back({frame.payload.data(), frame.payload.size()});
    iov.insert(iov.end(), bulk.begin(), bulk.end());
    return stream()->WriteAll(std::move(iov), deadline);
  }

  GrantTable grants_;
};

// One Pull in progress: what was asked for and has not come yet, found by name.
class TcpPull {
 public:
  TcpPull(SocketStream* stream, std::span<const ReadExtent> extents, PullOutcome* out)
      : stream_(stream), extents_(extents), out_(out) {}

  Status Run(Instant deadline) {
    for (size_t i = 0; i < extents_.size(); i += kRangesMax) {
      const size_t n = std::min<size_t>(kRangesMax, extents_.size() - i);
      BATON_RETURN_IF_ERROR(Ask(i, n, deadline));
      while (!missing_.empty()) BATON_RETURN_IF_ERROR(ReceiveData(deadline));
    }
    return absl::OkStatus();
  }

 private:
  Status Ask(size_t first, size_t count, Instant deadline) {
    std::vector<PartRange> ranges;
    ranges.reserve(count);
    for (size_t i = first; i < first + count; ++i) {
      const ReadExtent& e = extents_[i];
      if (e.bytes == 0 || e.bytes != e.destination.size() ||
          !missing_.emplace(std::pair(e.state_id, e.part), i).second)
        return absl::InvalidArgumentError(
            absl::StrCat("extent ", i, " is empty, asked twice or not of its destination's size"));
      ranges.push_back({e.state_id, e.part, 0, e.bytes});
    }
    return stream_->SendFrame(EncodeRanges(FrameType::kRead, ranges), deadline);
  }

  Status ReceiveData(Instant deadline) {
    BATON_ASSIGN_OR_RETURN(const Frame frame, stream_->ReceiveFrame(deadline));
    if (frame.type == FrameType::kError) return DecodeError(frame);
    BATON_ASSIGN_OR_RETURN(const std::vector<PartRange> table,
                           DecodeRanges(FrameType::kData, frame));
    std::vector<iovec> iov;
    std::vector<size_t> which;
    for (const PartRange& range : table) {
      const auto it = missing_.find({range.state_id, range.part});
      if (it == missing_.end())
        return Reject(
            Reason::kUnknownPart,
            absl::StrCat(stream_->peer(), ": sends part ", range.part.value, " of bundle ",
                         range.state_id.Hex(), ", which is not asked for or came already"));
      const ReadExtent& e = extents_[it->second];
      if (range.offset != 0 || range.bytes != e.bytes)
        return Reject(
            Reason::kShortTransfer,
            absl::StrCat(stream_->peer(), ": sends bytes ", range.offset, "+", range.bytes,
                         " of part ", range.part.value, ", asked 0+", e.bytes));
      iov.push_back({e.destination.data(), e.destination.size()});
      which.push_back(it->second);
      missing_.erase(it);
    }
    uint64_t moved = 0;
    Status status = stream_->ReadAll(std::move(iov), deadline, &moved);
    for (const size_t i : which) {
      out_->landed[i] = std::min(moved, extents_[i].bytes);
      moved -= out_->landed[i];
    }
    return status;
  }

  SocketStream* stream_;
  std::span<const ReadExtent> extents_;
  PullOutcome* out_;
  absl::flat_hash_map<std::pair<StateId, PartKey>, size_t> missing_;
};

class TcpConnector final : public Connector {
 public:
  explicit TcpConnector(const Clock* clock) : clock_(clock) {}
  std::string_view name() const override { return "tcp"; }

  StatusOr<std::unique_ptr<Link>> Connect(const std::string& endpoint,
                                          Instant deadline,
                                          const CancelToken& cancel) override {
    BATON_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(endpoint));
    if (parsed.scheme != name())
      return absl::InvalidArgumentError("'" + endpoint + "' is not a tcp endpoint");
    AddressList list;
    BATON_RETURN_IF_ERROR(Lookup(parsed.address, /*passive=*/false, &list));
    Status last = Reject(Reason::kPeerUnavailable, endpoint + ": no address");
    for (const addrinfo* a = list.head; a != nullptr; a = a->ai_next) {
      Fd fd(socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (!fd.valid()) continue;
      Tune(fd.get());
      last = absl::OkStatus();
      if (connect(fd.get(), a->ai_addr, a->ai_addrlen) != 0)
        last = errno == EINPROGRESS
                   ? FinishConnect(fd.get(), endpoint, deadline, clock_, cancel)
                   : Reject(Reason::kPeerUnavailable,
                            absl::StrCat(endpoint, ": connect: ", ErrnoText(errno)));
      if (last.ok())
        return std::make_unique<TcpLink>(
            std::make_unique<SocketStream>(std::move(fd), endpoint, clock_));
    }
    return last;
  }

  PullOutcome Pull(Link& link, std::span<const ReadExtent> extents, Instant deadline) override {
    PullOutcome out;
    out.landed.assign(extents.size(), 0);
    auto* tcp = dynamic_cast<TcpLink*>(&link);
    if (tcp == nullptr) {
      out.status = absl::InvalidArgumentError("not a link of the tcp connector");
      return out;
    }
    out.status = TcpPull(tcp->stream(), extents, &out).Run(deadline);
    return out;
  }

 private:
  const Clock* clock_;
};

class TcpListener final : public Listener {
 public:
  TcpListener(Fd fd, std::string endpoint, std::vector<SourceRegion> regions, const Clock* clock)
      : loop_(std::move(fd)),
        endpoint_(std::move(endpoint)),
        regions_(std::move(regions)),
        clock_(clock) {}

  StatusOr<std::unique_ptr<SourceLink>> Accept() override {
    BATON_ASSIGN_OR_RETURN(Fd fd, loop_.Next());
    Tune(fd.get());
    return std::make_unique<TcpSourceLink>(
        std::make_unique<SocketStream>(std::move(fd), "peer of " + endpoint_, clock_), regions_);
  }
  void Close() override { loop_.Close(); }
  std::string endpoint() const override { return endpoint_; }
  std::string_view connector_name() const override { return "tcp"; }

 private:
  AcceptLoop loop_;
  const std::string endpoint_;
  const std::vector<SourceRegion> regions_;
  const Clock* clock_;
};

StatusOr<std::string> BoundEndpoint(int fd, const std::string& address) {
  sockaddr_storage bound{};
  socklen_t len = sizeof bound;
  char port[NI_MAXSERV];
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &len) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&bound), len, nullptr, 0, port, sizeof port,
                  NI_NUMERICSERV) != 0)
    return absl::UnavailableError("tcp:" + address + ": cannot read back the bound port");
  return "tcp:" + address.substr(0, address.rfind(':') + 1) + port;
}

}  // namespace

std::unique_ptr<Connector> MakeTcpConnector(const Clock* clock) {
  return std::make_unique<TcpConnector>(clock);
}

StatusOr<std::unique_ptr<Listener>> ListenTcp(const std::string& address,
                                              std::vector<SourceRegion> regions,
                                              const Clock* clock) {
  AddressList list;
  BATON_RETURN_IF_ERROR(Lookup(address, /*passive=*/true, &list));
  std::string why = "no address";
  for (const addrinfo* a = list.head; a != nullptr; a = a->ai_next) {
    Fd fd(socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int one = 1;
    if (fd.valid()) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!fd.valid() || bind(fd.get(), a->ai_addr, a->ai_addrlen) != 0 ||
        listen(fd.get(), kBacklog) != 0) {
      why = ErrnoText(errno);
      continue;
    }
    BATON_ASSIGN_OR_RETURN(std::string endpoint, BoundEndpoint(fd.get(), address));
    return std::make_unique<TcpListener>(std::move(fd), std::move(endpoint), std::move(regions),
                                         clock);
  }
  return absl::UnavailableError("cannot listen on tcp:" + address + ": " + why);
}

}  // namespace baton
