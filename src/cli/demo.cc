// `baton demo`: router, prefill and decode worker as three processes; a streamed completion, a
// second turn that resumes it, and one request whose state a hostile connector replaces in flight
// by another request's. The hostile connector lives in the demo's own decode worker (`demo
// --as-worker`); serve and route cannot be given one.
#include <cstdio>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "cli/cluster.h"
#include "cli/command.h"
#include "cli/demo_worker.h"
#include "cli/model_path.h"
#include "cli/serve.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

struct Flags {
  bool json = false;
  std::string connector = "shm";
  bool as_worker = false;
  int swap_handoff = 0;
  ServeFlags serve;  // as_worker only, and `model`
};

// One request and what became of it.
struct Turn {
  std::string title;
  std::string prompt;    // the user's words
  std::string text;      // the answer
  std::string expected;  // the answer of an undisturbed all-in-one worker
  Json debug;
};

// Splits server-sent events and prints text as it arrives.
class SseReader {
 public:
  explicit SseReader(bool print) : print_(print) {}
  void Feed(std::string_view data) {
    buffer_.append(data);
    size_t end;
    while ((end = buffer_.find("\n\n")) != std::string::npos) {
      Event(buffer_.substr(0, end));
      buffer_.erase(0, end + 2);
    }
  }
  const std::string& text() const { return text_; }
  const Json& debug() const { return debug_; }
  const std::string& error() const { return error_; }

 private:
  void Event(const std::string& event) {
    if (event.rfind("data: ", 0) != 0 || event == "data: [DONE]") return;
    const StatusOr<Json> json = ParseJsonLenient(event.substr(6));
    if (!json.ok()) return;
    if (json->contains("error")) error_ = (*json)["error"].value("message", "error");
    if (json->contains("baton")) debug_ = (*json)["baton"];
    if (!json->contains("choices")) return;
    for (const Json& choice : (*json)["choices"]) {
      if (choice.contains("baton")) debug_ = choice["baton"];
      if (!choice.contains("delta") || !choice["delta"].contains("content")) continue;
      const Json& content = choice["delta"]["content"];
      if (!content.is_string()) continue;
      text_ += content.get<std::string>();
      if (print_) std::fputs(content.get<std::string>().c_str(), stdout);
      if (print_) std::fflush(stdout);
    }
  }
  const bool print_;
  std::string buffer_, text_, error_;
  Json debug_;
};

Json ChatBody(const Json& messages, bool stream) {
  Json body;
  body["messages"] = messages;
  body["max_tokens"] = 48;
  body["temperature"] = 0;
  body["stream"] = stream;
  body["baton_debug"] = true;
  return body;
}

class Demo {
 public:
  Demo(Flags flags, std::string model) : f_(std::move(flags)), model_(std::move(model)) {}

  int Run() {
    const Status status = Play();
    if (!status.ok()) return Fail(status);
    f_.json ? PrintJson() : PrintTable();
    return ok_ ? 0 : 1;
  }

 private:
  Status Play() {
    ClusterOptions options;
    options.model_dir = model_;
    options.port = 0;
    options.connector = f_.connector;
    options.decode_command = {"demo", "--as-worker", "--swap-handoff", "3"};
    const std::string logs =
        (fs::temp_directory_path() / absl::StrCat("baton-demo-", getpid())).string();
    fs::create_directories(logs);
    options.log_dir = logs;
    if (!f_.json) std::printf("starting router, prefill and decode worker ...\n");
    BATON_ASSIGN_OR_RETURN(cluster_, Cluster::Start(std::move(options), &http_));
    if (!f_.json)
      std::printf("router %s (pid %d), prefill %s (pid %d), decode %s (pid %d)\n",
                  cluster_->url().c_str(), cluster_->pid(2), cluster_->prefill_url().c_str(),
                  cluster_->pid(0), cluster_->decode_url().c_str(), cluster_->pid(1));

    Json talk = Json::array();
    BATON_RETURN_IF_ERROR(Ask("1. a streamed completion, prefill and decode apart",
                              "the code of amber is 4821. the code of cedar is 1730. "
                              "what is the code of amber?",
                              &talk));
    BATON_RETURN_IF_ERROR(
        Ask("2. the same conversation resumed: both workers start from what they hold",
            "what is the code of cedar?", &talk));
    Json other = Json::array();
    BATON_RETURN_IF_ERROR(Ask(
        "3. another user; in flight, a hostile connector replaces the state by that of request 1",
        "the code of river is 9056. the code of stone is 2467. "
        "what is the code of river?",
        &other));
    cluster_->Stop(std::chrono::milliseconds(3000));
    std::error_code ignored;
    fs::remove_all(logs, ignored);
    return absl::OkStatus();
  }

  // Streams one turn through the router, and asks the prefill worker alone for the same, as truth.
  Status Ask(const std::string& title, const std::string& prompt, Json* messages) {
    messages->push_back({{"role", "user"}, {"content", prompt}});
    if (!f_.json)
      std::printf("\n%s\n  user:      %s\n  assistant: ", title.c_str(), prompt.c_str());
    SseReader reader(!f_.json);
    BATON_ASSIGN_OR_RETURN(
        const HttpAnswer answer,
        http_.Post(cluster_->url() + "/v1/chat/completions", ChatBody(*messages, true).dump(),
                   [&](std::string_view data) { reader.Feed(data); }));
    if (answer.status != 200) return absl::UnavailableError("HTTP " + answer.body);
    if (!reader.error().empty()) return absl::UnavailableError(reader.error());
    if (!f_.json) std::printf("\n");
    BATON_ASSIGN_OR_RETURN(const HttpAnswer alone,
                           http_.Post(cluster_->prefill_url() + "/v1/chat/completions",
                                      ChatBody(*messages, false).dump()));
    Turn turn;
    turn.title = title;
    turn.prompt = prompt;
    turn.text = reader.text();
    turn.debug = reader.debug();
    const StatusOr<Json> truth = ParseJsonLenient(alone.body);
    if (truth.ok() && truth->contains("choices"))
      turn.expected = (*truth)["choices"][0]["message"].value("content", "");
    messages->push_back({{"role", "assistant"}, {"content", turn.text}});
    turns_.push_back(std::move(turn));
    return absl::OkStatus();
  }

  // What must have happened: two clean hand-offs, one caught, and every text the undisturbed one.
  std::vector<std::string> Problems() const {
    std::vector<std::string> problems;
    for (size_t i = 0; i < turns_.size(); ++i) {
      const Turn& t = turns_[i];
      if (t.text != t.expected)
        problems.push_back(t.title + ": the text is not the undisturbed one");
      const int64_t rejects = t.debug.value("rejects", int64_t{-1});
      if (rejects != (i == 2 ? 1 : 0))
        problems.push_back(absl::StrCat(t.title, ": ", rejects, " rejects"));
      if (!t.debug.contains("handoffs") || t.debug["handoffs"].empty())
        problems.push_back(t.title + ": no hand-off took place");
    }
    return problems;
  }

  void PrintTable() {
    std::printf("\nhand-offs\n%-3s %-14s %8s %6s %9s %9s %8s %-9s %-10s %s\n", "", "state-id",
                "boundary", "parts", "KV B", "state B", "ms", "connector", "recomputed", "verdict");
    for (size_t i = 0; i < turns_.size(); ++i) {
      for (const Json& h : turns_[i].debug.value("handoffs", Json::array())) {
        const std::string verdict =
            h.value("verified", false)
                ? "verified"
                : "REJECTED " + h.value("reason", "") + ": " + h.value("message", "");
        std::printf("%-3zu %-14s %8ld %6ld %9ld %9ld %8.2f %-9s %-10ld %s\n", i + 1,
                    h.value("state_id", "").substr(0, 12).c_str(), h.value("boundary", int64_t{0}),
                    h.value("parts", int64_t{0}), h.value("kv_bytes", int64_t{0}),
                    h.value("state_bytes", int64_t{0}), h.value("milliseconds", 0.0),
                    h.value("connector", "").c_str(),
                    turns_[i].debug.value("recomputed_tokens", int64_t{0}), verdict.c_str());
      }
    }
    const auto problems = Problems();
    ok_ = problems.empty();
    for (const std::string& p : problems) std::printf("UNEXPECTED: %s\n", p.c_str());
    if (ok_)
      std::printf(
          "\nThe swapped state was refused before a token was decoded from it, asked for again, "
          "and\n"
          "every answer is, to the bit, what one undisturbed process gives. Next: make up\n");
  }

  void PrintJson() {
    const auto problems = Problems();
    ok_ = problems.empty();
    Json out;
    out["ok"] = ok_;
    out["problems"] = problems;
    out["turns"] = Json::array();
    for (const Turn& t : turns_)
      out["turns"].push_back({{"title", t.title},
                              {"prompt", t.prompt},
                              {"text", t.text},
                              {"equals_undisturbed", t.text == t.expected},
                              {"baton", t.debug}});
    std::printf("%s\n", out.dump(2).c_str());
  }

  const Flags f_;
  const std::string model_;
  BlockingHttp http_;
  std::unique_ptr<Cluster> cluster_;
  std::vector<Turn> turns_;
  bool ok_ = false;
};

}  // namespace

Run AddDemo(CLI::App* app) {
  auto f = std::make_shared<Flags>();
  app->add_flag("--json", f->json, "print everything as JSON");
  app->add_option("--connector", f->connector, "how bundles move")
      ->check(CLI::IsMember({"shm", "tcp", "ucx"}))
      ->capture_default_str();
  // The demo's decode worker: not for users, hence in no group of the help text.
  app->add_flag("--as-worker", f->as_worker)->group("");
  app->add_option("--swap-handoff", f->swap_handoff)->group("");
  CLI::App* serve = app->add_option_group("");
  AddServeFlags(serve, &f->serve);
  return [f] {
    if (f->as_worker) return RunDemoWorker(f->serve, f->swap_handoff);
    auto model = ResolveModel(f->serve.model);
    if (!model.ok()) return Fail(model.status());
    return Demo(*f, *model).Run();
  };
}

}  // namespace baton::cli
