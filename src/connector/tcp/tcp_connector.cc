#include "connector/tcp/tcp_connector.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "connector/extents.h"
#include "connector/frame.h"
#include "connector/grant_table.h"
#include "connector/revocable.h"
#include "connector/socket_stream.h"
#include "connector/tcp/tcp_socket.h"

namespace baton {
namespace {

// Ranges and bytes announced by one kData: large enough that the table costs nothing, small enough
// that a refused part is noticed early.
constexpr size_t kDataRangesMax = 512;
constexpr uint64_t kDataBytesMax = uint64_t{32} << 20;

// A type of its own, so that Pull can tell it from other links over sockets.
class TcpLink final : public SocketLink<Link> {
 public:
  using SocketLink<Link>::SocketLink;
};

class TcpSourceLink final : public SocketLink<SourceLink>, public Revocable {
 public:
  TcpSourceLink(std::unique_ptr<SocketStream> stream, std::vector<SourceRegion> regions)
      : SocketLink<SourceLink>(std::move(stream)), grants_(std::move(regions)) {}

  StatusOr<std::vector<ExtentAddress>> Grant(std::span<const GrantedPart> parts) override {
    return grants_.Grant(parts);
  }
  // This thread is the only one that sends, and the kernel has copied whatever a send returned
  // for, so emptying the table is enough.
  void RevokeAll() override { grants_.RevokeAll(); }
  // In this order: a read that looks into the table from now on finds nothing.
  bool RevokeWhileServing() override {
    grants_.RevokeAll();
    return !reading_;
  }

  StatusOr<Frame> ServeUntilFrame(Instant deadline) override {
    for (;;) {
      BATON_ASSIGN_OR_RETURN(Frame frame, Receive(deadline));
      if (frame.type != FrameType::kRead) return frame;
      reading_ = true;
      Status served = Serve(frame, deadline);
      reading_ = false;
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
  std::atomic<bool> reading_{false};  // what the table says, for the peer
};

// One Pull in progress: what was asked for and has not come yet, found by name.
class TcpPull {
 public:
  TcpPull(SocketStream* stream, std::span<const ReadExtent> extents, PullOutcome* out)
      : stream_(stream), extents_(extents), out_(out) {}

  Status Run(Instant deadline) {
    BATON_RETURN_IF_ERROR(CheckExtents(extents_));
    for (size_t i = 0; i < extents_.size(); i += kRangesMax) {
      // A source that answers faster than this side reads would never let it wait, and look.
      if (stream_->clock()->Now() >= deadline)
        return Reject(Reason::kPeerUnavailable, stream_->peer() + ": deadline passed");
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
      missing_.emplace(std::pair(e.state_id, e.part), i);
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
    BATON_ASSIGN_OR_RETURN(Fd fd, ConnectTcpSocket(parsed, deadline, clock_, cancel));
    return std::make_unique<TcpLink>(
        std::make_unique<SocketStream>(std::move(fd), endpoint, clock_));
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
    TuneTcpSocket(fd.get());
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

}  // namespace

std::unique_ptr<Connector> MakeTcpConnector(const Clock* clock) {
  return std::make_unique<TcpConnector>(clock);
}

StatusOr<std::unique_ptr<Listener>> ListenTcp(const std::string& address,
                                              std::vector<SourceRegion> regions,
                                              const Clock* clock) {
  BATON_ASSIGN_OR_RETURN(ListeningSocket socket, ListenTcpSocket({"tcp", address}));
  return std::make_unique<TcpListener>(std::move(socket.fd), std::move(socket.endpoint),
                                       std::move(regions), clock);
}

}  // namespace baton
