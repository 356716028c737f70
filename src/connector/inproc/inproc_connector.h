// Hand-offs between two nodes of one process: frames go through queues, bytes are copied straight
// from source to destination memory. Both sides are given the same InprocHub, which maps names to
// listeners. Used by the all-in-one role and as the reference the other connectors are compared
// with. Thread rule: thread-safe, as connector.h says.
#ifndef BATON_CONNECTOR_INPROC_INPROC_CONNECTOR_H_
#define BATON_CONNECTOR_INPROC_INPROC_CONNECTOR_H_

#include <memory>
#include <string>
#include <vector>

#include "connector/connector.h"

namespace baton {

// Outlives every connector and listener made from it.
class InprocHub {
 public:
  InprocHub();
  ~InprocHub();
  InprocHub(const InprocHub&) = delete;
  InprocHub& operator=(const InprocHub&) = delete;

  struct State;
  State* state() { return state_.get(); }

 private:
  std::unique_ptr<State> state_;
};

std::unique_ptr<Connector> MakeInprocConnector(InprocHub* hub, const Clock* clock);
// InvalidArgument if the name is empty or taken.
StatusOr<std::unique_ptr<Listener>> ListenInproc(InprocHub* hub,
                                                 const std::string& name,
                                                 std::vector<SourceRegion> regions,
                                                 const Clock* clock);

}  // namespace baton

#endif  // BATON_CONNECTOR_INPROC_INPROC_CONNECTOR_H_
