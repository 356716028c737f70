#include "connector/shm/shm_connector.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "connector/extents.h"
#include "connector/frame.h"
#include "connector/grant_table.h"
#include "connector/revocable.h"
#include "connector/shm/arena_map.h"
#include "connector/socket_stream.h"

namespace baton {
namespace {

constexpr int kBacklog = 128;
constexpr size_t kRegionsMax = 16;

struct UnixAddress {
  sockaddr_un addr{};
  socklen_t len = 0;
};

StatusOr<UnixAddress> ParseUnix(const std::string& address) {
  UnixAddress out;
  out.addr.sun_family = AF_UNIX;
  if (address.empty() || address == "@" || address.size() >= sizeof out.addr.sun_path)
    return absl::InvalidArgumentError(absl::StrCat("shm endpoint '", address,
                                                   "' is not a socket path or @name of at most ",
                                                   sizeof out.addr.sun_path - 1, " bytes"));
  std::memcpy(out.addr.sun_path, address.data(), address.size());
  // An abstract name starts with a zero byte and has no terminator.
  if (address[0] == '@') out.addr.sun_path[0] = '\0';
  out.len = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size() +
                                   (address[0] == '@' ? 0 : 1));
  return out;
}

// The arena travels between processes of one user only.
Status CheckSameUser(int fd, const std::string& peer) {
  ucred cred{};
  socklen_t len = sizeof cred;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0 || cred.uid != geteuid())
    return Reject(Reason::kPeerUnavailable,
                  absl::StrCat(peer, ": the other process runs as user ", cred.uid,
                               ", this one as ", geteuid(), "; shm needs the same user"));
  return absl::OkStatus();
}

class ShmLink final : public SocketLink<Link> {
 public:
  ShmLink(std::unique_ptr<SocketStream> stream, std::vector<std::shared_ptr<ArenaMap>> arenas)
      : SocketLink<Link>(std::move(stream)), arenas_(std::move(arenas)) {}
  const std::vector<std::shared_ptr<ArenaMap>>& arenas() const { return arenas_; }

 private:
  std::vector<std::shared_ptr<ArenaMap>> arenas_;
};

class ShmSourceLink final : public SocketLink<SourceLink>, public Revocable {
 public:
  ShmSourceLink(std::unique_ptr<SocketStream> stream, std::vector<SourceRegion> regions)
      : SocketLink<SourceLink>(std::move(stream)), grants_(std::move(regions)) {}
  StatusOr<std::vector<ExtentAddress>> Grant(std::span<const GrantedPart> parts) override {
    return grants_.Grant(parts);
  }
  // This process reads nothing for the peer; the peer reads its own mapping, and a late read of
  // reused memory fails its digest.
  void RevokeAll() override { grants_.RevokeAll(); }
  bool RevokeWhileServing() override {
    grants_.RevokeAll();
    return true;
  }
  StatusOr<Frame> ServeUntilFrame(Instant deadline) override { return Receive(deadline); }

 private:
  GrantTable grants_;
};

Frame ArenaFrame(std::span<const SourceRegion> regions) {
  ByteWriter w;
  w.Put(static_cast<uint32_t>(regions.size()));
  for (const SourceRegion& region : regions) w.Put(static_cast<uint64_t>(region.bytes.size()));
  return Frame{FrameType::kArena, w.Take()};
}

class ShmConnector final : public Connector {
 public:
  explicit ShmConnector(const Clock* clock) : clock_(clock) {}
  std::string_view name() const override { return "shm"; }

  StatusOr<std::unique_ptr<Link>> Connect(const std::string& endpoint,
                                          Instant deadline,
                                          const CancelToken& cancel) override {
    BATON_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(endpoint));
    if (parsed.scheme != name())
      return absl::InvalidArgumentError("'" + endpoint + "' is not a shm endpoint");
    BATON_ASSIGN_OR_RETURN(const UnixAddress address, ParseUnix(parsed.address));
    Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd.valid()) return Reject(Reason::kPeerUnavailable, endpoint + ": " + ErrnoText(errno));
    if (cancel.stop_requested()) return Reject(Reason::kCancelled, endpoint + ": cancelled");
    // A Unix connect completes at once or says EAGAIN while the backlog is full.
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.addr), address.len) != 0) {
      const int error = errno;
      maps_.Forget(endpoint);
      return Reject(Reason::kPeerUnavailable,
                    absl::StrCat(endpoint, ": connect: ", ErrnoText(error)));
    }
    BATON_RETURN_IF_ERROR(CheckSameUser(fd.get(), endpoint));
    auto stream = std::make_unique<SocketStream>(std::move(fd), endpoint, clock_);
    SocketStream* const raw = stream.get();  // outlives the callback
    const CancelCallback on_cancel(cancel, [raw] { raw->Close(); });
    BATON_ASSIGN_OR_RETURN(auto arenas, ReceiveArenas(raw, deadline));
    return std::make_unique<ShmLink>(std::move(stream), std::move(arenas));
  }

  PullOutcome Pull(Link& link, std::span<const ReadExtent> extents, Instant deadline) override {
    PullOutcome out;
    out.landed.assign(extents.size(), 0);
    auto* shm = dynamic_cast<ShmLink*>(&link);
    if (shm == nullptr) {
      out.status = absl::InvalidArgumentError("not a link of the shm connector");
      return out;
    }
    out.status = CheckExtents(extents);
    for (size_t i = 0; i < extents.size() && out.status.ok(); ++i) {
      out.status = Copy(*shm, extents[i], deadline);
      if (out.status.ok()) out.landed[i] = extents[i].bytes;
    }
    return out;
  }

 private:
  StatusOr<std::vector<std::shared_ptr<ArenaMap>>> ReceiveArenas(SocketStream* stream,
                                                                 Instant deadline) {
    std::vector<Fd> fds;
    BATON_ASSIGN_OR_RETURN(const Frame frame, stream->ReceiveFrameWithFds(&fds, deadline));
    if (frame.type == FrameType::kError) return DecodeError(frame);
    ByteReader r(AsBytes(frame.payload));
    const uint32_t count = r.Get<uint32_t>();
    if (frame.type != FrameType::kArena || !r.ok() || count == 0 || count > kRegionsMax ||
        count != fds.size() || r.remaining() != count * sizeof(uint64_t))
      return Reject(Reason::kMalformed,
                    absl::StrCat(stream->peer(),
                                 ": expected an arena frame with as many "
                                 "descriptors as regions, found type ",
                                 static_cast<int>(frame.type), ", ", fds.size(), " descriptors"));
    std::vector<std::shared_ptr<ArenaMap>> arenas;
    for (Fd& fd : fds) {
      BATON_ASSIGN_OR_RETURN(
          auto map, maps_.Map(stream->peer(), arenas.size(), std::move(fd), r.Get<uint64_t>()));
      arenas.push_back(std::move(map));
    }
    return arenas;
  }

  Status Copy(ShmLink& link, const ReadExtent& e, Instant deadline) {
    if (link.stream()->closed())
      return Reject(Reason::kPeerUnavailable, link.peer() + ": link closed");
    if (clock_->Now() >= deadline)
      return Reject(Reason::kPeerUnavailable, link.peer() + ": deadline passed while copying");
    if (e.region >= link.arenas().size())
      return Reject(Reason::kMalformed, absl::StrCat(link.peer(), ": offer names region ", e.region,
                                                     ", it has ", link.arenas().size()));
    const ByteSpan arena = link.arenas()[e.region]->bytes();
    if (e.remote_offset > arena.size() || e.bytes > arena.size() - e.remote_offset)
      return Reject(Reason::kMalformed,
                    absl::StrCat(link.peer(), ": offer names bytes ", e.remote_offset, "+", e.bytes,
                                 " of an arena of ", arena.size()));
    std::memcpy(e.destination.data(), arena.data() + e.remote_offset, e.bytes);
    return absl::OkStatus();
  }

  const Clock* clock_;
  ArenaMapCache maps_;
};

class ShmListener final : public Listener {
 public:
  ShmListener(Fd fd, std::string address, std::vector<SourceRegion> regions, const Clock* clock)
      : loop_(std::move(fd)),
        address_(std::move(address)),
        regions_(std::move(regions)),
        clock_(clock) {}
  ~ShmListener() override {
    if (address_[0] != '@') unlink(address_.c_str());
  }

  StatusOr<std::unique_ptr<SourceLink>> Accept() override {
    for (;;) {
      BATON_ASSIGN_OR_RETURN(Fd fd, loop_.Next());
      if (!CheckSameUser(fd.get(), endpoint()).ok()) continue;
      auto stream = std::make_unique<SocketStream>(std::move(fd), "peer of " + endpoint(), clock_);
      std::vector<int> fds;
      fds.reserve(regions_.size());
      for (const SourceRegion& region : regions_) fds.push_back(region.fd);
      // A fresh socket's buffer takes this frame without waiting: no peer can hold up Accept.
      if (stream->SendFrameWithFds(ArenaFrame(regions_), fds, clock_->Now() + kPollSlice).ok())
        return std::make_unique<ShmSourceLink>(std::move(stream), regions_);
    }
  }
  void Close() override { loop_.Close(); }
  std::string endpoint() const override { return "shm:" + address_; }
  std::string_view connector_name() const override { return "shm"; }

 private:
  AcceptLoop loop_;
  const std::string address_;
  const std::vector<SourceRegion> regions_;
  const Clock* clock_;
};

}  // namespace

std::unique_ptr<Connector> MakeShmConnector(const Clock* clock) {
  return std::make_unique<ShmConnector>(clock);
}

StatusOr<std::unique_ptr<Listener>> ListenShm(const std::string& address,
                                              std::vector<SourceRegion> regions,
                                              const Clock* clock) {
  BATON_ASSIGN_OR_RETURN(const UnixAddress unix_address, ParseUnix(address));
  if (regions.empty() || regions.size() > kRegionsMax)
    return absl::InvalidArgumentError(
        absl::StrCat("shm needs 1 to ", kRegionsMax, " regions, given ", regions.size()));
  for (const SourceRegion& region : regions)
    if (region.fd < 0)
      return absl::InvalidArgumentError(
          "shm needs memory with a descriptor: create the arena with shareable = true");
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const auto* addr = reinterpret_cast<const sockaddr*>(&unix_address.addr);
  bool bound = fd.valid() && bind(fd.get(), addr, unix_address.len) == 0;
  if (fd.valid() && !bound && errno == EADDRINUSE && address[0] != '@') {
    // A socket file that a killed process left behind: nobody answers on it.
    Fd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    struct stat st {};
    const bool stale = stat(address.c_str(), &st) == 0 && S_ISSOCK(st.st_mode) && probe.valid() &&
                       connect(probe.get(), addr, unix_address.len) != 0 && errno == ECONNREFUSED;
    if (stale && unlink(address.c_str()) == 0)
      bound = bind(fd.get(), addr, unix_address.len) == 0;
    else
      errno = EADDRINUSE;
  }
  if (!bound || listen(fd.get(), kBacklog) != 0)
    return absl::UnavailableError("cannot listen on shm:" + address + ": " + ErrnoText(errno));
  return std::make_unique<ShmListener>(std::move(fd), address, std::move(regions), clock);
}

}  // namespace baton
