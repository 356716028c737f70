// The wire between router and workers: what the production router's HttpClient and IoPool are in
// this program. The router (RemoteGenerator and all below it) and the worker's handler (WorkerCall)
// are the production ones; of HTTP only the order of head, data, end and loss is kept.
// Thread rule: fibers of one scheduler; one SimHttp at a time.
#ifndef BATON_TEST_SIM_HTTP_H_
#define BATON_TEST_SIM_HTTP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "server/http.h"
#include "server/http_client.h"
#include "sim/event_loop.h"
#include "sim/faults.h"
#include "sim/network.h"

namespace baton::sim {

class SimExchange;

class SimHttp {
 public:
  SimHttp(Scheduler* scheduler, Trace* trace, FaultPlan* plan);
  ~SimHttp();
  static SimHttp* current();

  // What answers at this port. Replaces what did before.
  void Serve(uint16_t port, MachinePtr machine, server::HttpHandler handler);
  // Every connection to the machine is lost.
  void Cut(const Machine& machine);
  void Stop();

  std::shared_ptr<server::ClientCall> Start(server::ClientRequest request,
                                            std::shared_ptr<server::ClientHandler> handler);
  EventLoop& loop() { return loop_; }
  Scheduler& scheduler() { return *scheduler_; }
  size_t open() const { return exchanges_.size(); }
  Duration Latency();
  void Closed(const SimExchange* exchange);

 private:
  struct Host {
    MachinePtr machine;
    server::HttpHandler handler;
  };
  Scheduler* scheduler_;
  Trace* trace_;
  FaultPlan* plan_;
  EventLoop loop_;
  std::map<uint16_t, Host> hosts_;
  std::map<uint64_t, std::weak_ptr<SimExchange>> exchanges_;
  uint64_t next_id_ = 1;
};

}  // namespace baton::sim

#endif  // BATON_TEST_SIM_HTTP_H_
