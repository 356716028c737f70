// Child processes of `up` and `demo`: started, watched and ended by pid. A child dies with its
// parent. Thread rule: one thread.
#ifndef BATON_CLI_PROCESS_H_
#define BATON_CLI_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace baton::cli {

class ChildProcess {
 public:
  // Runs `binary` with `arguments`; output is appended to `log_path`, or inherited if empty.
  static StatusOr<std::unique_ptr<ChildProcess>> Start(const std::string& binary,
                                                       const std::vector<std::string>& arguments,
                                                       const std::string& log_path);
  ~ChildProcess();  // Stop with a short grace
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // False once it has ended; reaps it.
  bool Running();
  // SIGTERM, then SIGKILL after `grace`.
  void Stop(std::chrono::milliseconds grace);
  void Kill();
  int exit_code() const { return exit_code_; }

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_;
  bool ended_ = false;
  int exit_code_ = -1;
};

// A TCP port of the loopback interface that was free a moment ago.
StatusOr<int> FreePort();
// Path of the running binary.
std::string SelfPath();

}  // namespace baton::cli

#endif  // BATON_CLI_PROCESS_H_
