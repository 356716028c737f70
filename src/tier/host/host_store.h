// The store of the host tier: objects in anonymous memory of this process. Nothing outlives it.
// Thread rule: as ObjectStore.
#ifndef BATON_TIER_HOST_HOST_STORE_H_
#define BATON_TIER_HOST_HOST_STORE_H_

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "tier/object_store.h"

namespace baton {

struct HostStoreOptions {
  // Memory that may be held at once; the tier's budget, objects being written included.
  uint64_t bytes_max = 0;
};

// kResourceExhausted if the address space for bytes_max cannot be had.
StatusOr<std::unique_ptr<ObjectStore>> OpenHostStore(const HostStoreOptions& options);

}  // namespace baton

#endif  // BATON_TIER_HOST_HOST_STORE_H_
