// Router, prefill and decode worker as three child processes on loopback: what `up` and `demo`
// start. A child that dies is started again with the same arguments.
// Thread rule: one thread.
#ifndef BATON_CLI_CLUSTER_H_
#define BATON_CLI_CLUSTER_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/blocking_http.h"
#include "cli/process.h"

namespace baton::cli {

struct ClusterOptions {
  std::string binary;  // empty: this very binary
  std::string model_dir;
  int port = 8000;  // of the router; 0: any free one
  std::string host = "127.0.0.1";
  std::string connector = "shm";
  std::vector<std::string> worker_flags;  // passed to both workers
  std::vector<std::string> router_flags;
  // The subcommand line that runs the decode worker; `demo` puts its own here.
  std::vector<std::string> decode_command = {"serve"};
  std::string log_dir;  // empty: children write to our stderr
  std::chrono::seconds ready_timeout{120};
};

class Cluster {
 public:
  // Starts all three and waits until the router's /health says ready. The error shows the tail of
  // the failing child's log.
  static StatusOr<std::unique_ptr<Cluster>> Start(ClusterOptions options, BlockingHttp* http);
  ~Cluster();

  std::string url() const;  // of the router
  std::string prefill_url() const;
  std::string decode_url() const;
  pid_t pid(size_t child) const {
    return children_[child].process->pid();
  }  // 0 prefill 1 decode 2 router
  // Starts again whoever has died; call it now and then. Returns how many were restarted.
  int Supervise();
  void Stop(std::chrono::milliseconds grace);

 private:
  struct Child {
    std::string name;
    std::vector<std::string> arguments;
    std::unique_ptr<ChildProcess> process;
    std::chrono::steady_clock::time_point started;
  };
  Cluster() = default;
  Status Launch(Child* child);
  std::string LogPath(const Child& child) const;
  std::string LogTail(const Child& child) const;
  Status AwaitReady(BlockingHttp* http);

  ClusterOptions options_;
  int prefill_port_ = 0;
  int decode_port_ = 0;
  std::vector<Child> children_;
};

}  // namespace baton::cli

#endif  // BATON_CLI_CLUSTER_H_
