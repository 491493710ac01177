//go:build full

package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/sim"
)

// keys are the variables that hold the key.
var keys = []string{"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "AZURE_KEY"}

// provided is the imitation that stands for every host of a document.
var provided = sim.Config{Latency: 5 * time.Millisecond, Batches: sim.Batches{Latency: 100 * time.Millisecond}}

// engineHost is where documents have their Redis.
const engineHost = "10.0.0.5"

// modelServer is the port of this host at which documents have a server of their own, such as vLLM's.
const modelServer = "8000"

// rewrites are what is other in the test than in the documents, beside addresses of this host and that of Redis.
var rewrites = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`go run \./cmd/sluice\b`), "sluice"},
	{regexp.MustCompile(`sluice stress (.*?)--level (\w+)( --duration \w+)?`), "sluice stress ${1}--level ${2} --duration 3s"}, // minutes, else
	{regexp.MustCompile(`--idle-exit \d+s`), "--idle-exit 2m"},                                                                 // on a busy machine, the run may start later than that
	{regexp.MustCompile(`seq 200\); do echo "issue`), `seq 24); do echo "issue`},                                               // agents, of a tenth of a second each
	{regexp.MustCompile(`^(sluice find --model .*--output-file \S+)$`), "$1 --max-workers 4 --token-budget 8000"},              // the imitation has no limits to be found
}

// A staying command serves until it is told to end.
type staying struct {
	name  string // a variable of the shell, for its process
	what  *regexp.Regexp
	not   *regexp.Regexp
	ready *regexp.Regexp // what it prints when it serves
}

var servers = []staying{
	{"gateway", regexp.MustCompile(`^(\w+=\S* )*sluice serve\b`), regexp.MustCompile(`sluice serve key|--check|--help`), regexp.MustCompile(`http://`)},
	{"imitation", regexp.MustCompile(`^sluice sim\b`), regexp.MustCompile(`--help`), regexp.MustCompile(`http://`)},
	{"worker", regexp.MustCompile(`^sluice worker\b`), regexp.MustCompile(`--help`), regexp.MustCompile(`waiting|0 failed`)},
	{"engine", regexp.MustCompile(`^redis-server\b`), regexp.MustCompile(`--help`), regexp.MustCompile(`Ready`)},
}

// server returns which of them a command is, or nil.
func server(command string) *staying {
	for _, s := range servers {
		if s.what.MatchString(command) && !s.not.MatchString(command) {
			return &s
		}
	}
	return nil
}

// unrun are the commands that no session runs, and why not. They are of other programs: it is seen that a shell can read them and
// that files of the repository are there, and the tests of flags look at commands of sluice among them.
var unrun = []struct {
	begin []string // what a line of theirs begins with
	why   string
}{
	{[]string{"go test", "go install", "go build", "go run", "go generate"}, "TestTheGoCommandsOfTheDocuments sees that the packages and tests are there, and .ci/run runs the first of README.md"},
	{[]string{"docker", "kubectl", "systemctl", "systemd-run", "sudo", "install"}, ".ci/full has programs read what is deployed"},
	{[]string{"git clone", "sha256sum", "scripts/release"}, "it changes the machine, or needs another one"},
}

// beginning matches commands with a line that begins with these words, behind variables that are set for it.
func beginning(words string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)^(\w+=\S* )*` + regexp.QuoteMeta(words) + `\b`)
}

// elsewhere says why no session runs a command.
func elsewhere(command string) string {
	for _, u := range unrun {
		for _, words := range u.begin {
			if beginning(words).MatchString(command) {
				return u.why
			}
		}
	}
	return ""
}

var ours = regexp.MustCompile(`(?:^|[\s"'=])((?:deploy|scripts|docs|examples|internal|cmd)/[\w./-]+)`)

// readable says what is wrong with a command that is not run.
func readable(command string) error {
	if out, err := exec.Command("bash", "-n", "-c", command).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for _, m := range ours.FindAllStringSubmatch(command, -1) {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			return fmt.Errorf("there is no %s", m[1])
		}
	}
	return nil
}

// needed are programs that a machine with only Go may lack. A session with a command that needs an absent one is skipped.
var needed = []string{"curl", "jq", "openssl", "python3"}

// absent returns a program that a command needs and the machine lacks.
func absent(command string) string {
	for _, name := range needed {
		if needs(command, name) {
			if _, err := exec.LookPath(name); err != nil {
				return name
			}
		}
	}
	return ""
}

// needs reports whether a command runs a program, by itself or for items.
func needs(command, name string) bool {
	return regexp.MustCompile(`(^|[|;&(] ?|-- )` + name + ` `).MatchString(command)
}

// codes are the commands that end with another code than 0.
var codes = []struct {
	what *regexp.Regexp
	code []int
	why  string
}{
	{regexp.MustCompile(`^sluice stress`), []int{0, 4}, "a machine that is busy with tests may miss a threshold; TestScripts of internal/cli has the command"},
	{regexp.MustCompile(`--schema review.json`), []int{3}, "two of its answers do not fit"},
}

// exitCodes are those that a command may end with.
func exitCodes(command string) []int {
	for _, c := range codes {
		if c.what.MatchString(command) {
			return c.code
		}
	}
	return []int{0}
}

// deterministic are commands whose figures are the same each time.
var deterministic = []*regexp.Regexp{
	regexp.MustCompile(`\bsluice explain\b`),
	regexp.MustCompile(`^sluice find .*--dry-run`),
	regexp.MustCompile(`^sluice plan (?s:.*)`),
}

// exact reports whether a command's figures have to be those of the document.
func exact(command string) bool {
	if strings.Contains(command, "--events") || strings.Contains(command, "--config") {
		return false
	}
	for _, d := range deterministic {
		if d.MatchString(command) {
			return true
		}
	}
	return false
}
