#include <unistd.h>

#include <cerrno>
#include <deque>

#include "tier/disk/block_io.h"

namespace baton {
namespace {

class SyncIo final : public BlockIo {
 public:
  std::string_view name() const override { return "pread/pwrite"; }
  Status Start(const IoRequest& r) override {
    ssize_t n;
    do {
      const auto offset = static_cast<off_t>(r.offset);
      n = r.write ? pwrite(r.fd, r.bytes.data(), r.bytes.size(), offset)
                  : pread(r.fd, r.bytes.data(), r.bytes.size(), offset);
    } while (n < 0 && errno == EINTR);
    done_.push_back({r.tag, n < 0 ? -int64_t{errno} : n});
    return absl::OkStatus();
  }
  StatusOr<IoCompletion> Wait() override {
    if (done_.empty()) return absl::InternalError("pread/pwrite: nothing under way");
    const IoCompletion first = done_.front();
    done_.pop_front();
    return first;
  }

 private:
  std::deque<IoCompletion> done_;
};

}  // namespace

std::unique_ptr<BlockIo> MakeSyncIo() { return std::make_unique<SyncIo>(); }

}  // namespace baton
