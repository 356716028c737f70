#include "handoff/restore.h"

#include "handoff/destination.h"

namespace baton {
namespace {

Status Run(const FillVerified& fill, Destination* destination, PullReport* report) {
  BATON_RETURN_IF_ERROR(destination->CheckShape());
  BATON_RETURN_IF_ERROR(destination->Land());
  RestorePlace place;
  place.bytes = [destination](const BundlePart& part) { return destination->BytesOf(part); };
  place.check_handles = [destination] { return destination->CheckHandles(); };
  BATON_RETURN_IF_ERROR(fill(place, report));
  BATON_RETURN_IF_ERROR(destination->Landed());
  return destination->Commit();
}

}  // namespace

PullResult RestoreBundle(const BundlePools& pools,
                         const Layout& layout,
                         const PullRequest& request,
                         const FillVerified& fill) {
  PullResult result;
  result.report.boundary = request.ask.expected.boundary;
  Quarantine nobody_writes_later(0);
  Destination destination(pools, layout, request, &nobody_writes_later);
  result.status = Run(fill, &destination, &result.report);
  if (!result.status.ok()) {
    destination.Abort();
    return result;
  }
  result.blocks = destination.blocks();
  result.slot = destination.slot();
  return result;
}

}  // namespace baton
