package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/sim"
)

// killCase is how a run is killed.
type killCase struct {
	items, kills int
	args         []string
	learns       bool                         // how many calls may be open, of which nobody is told
	between      func(k *killBench, kill int) // changes the input
}

// TestKill kills a run at instants spread over it, without a warning, and starts the same command again each time.
// Nothing may be lost, nothing recorded twice, and nothing that was recorded called again. Alone, with its figures:
//
//	go test -tags full ./internal/cli -run TestKill -v
func TestKill(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, c := range map[string]killCase{
		"plain":       {items: suite.Size(120, 600), kills: suite.Size(4, 20)},
		"learning":    {items: 200, kills: 5, learns: true},
		"in a budget": {items: 200, kills: 5, args: []string{"--max-total-tokens", "100000000", "--max-failures", "10%"}},
		"appended":    {items: 300, kills: 6, between: func(k *killBench, _ int) { k.write(len(k.prompts) + 20) }},
		"changed": {items: 300, kills: 6, args: []string{"--redo", "changed"}, between: func(k *killBench, kill int) {
			k.change(kill, kill+40)
		}},
		"changed and appended": {items: 300, kills: 6, args: []string{"--redo", "changed"},
			between: func(k *killBench, kill int) {
				k.write(len(k.prompts) + 20)
				k.change(kill, kill+40)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "plain" {
				suite.FullOnly(t)
			}
			t.Parallel() // they mostly wait
			killOften(t, c)
		})
	}
}

func killOften(t *testing.T, c killCase) {
	const slots = 16
	takes, args := slots, c.args
	if !c.learns {
		takes = 2 * slots // else it would hide that the run has more calls open than it may
		args = append(args, "--concurrency", fmt.Sprint(slots))
	}
	k := newKillBench(t, c.items, takes)
	k.args = args
	luck := rand.New(rand.NewPCG(1, 2))

	var withOpen, openAtKills, unrecorded int
	for i := range c.kills {
		// On a busy machine runs get far before they are killed: there is to be work for the next ones.
		if left := len(k.prompts) - len(k.recorded()); left < c.items/4 {
			k.write(len(k.prompts) + c.items/4)
		}
		before := k.stats().Requests
		cmd := k.start()
		k.awaitLines(i * c.items / c.kills)
		k.await("calls", func() bool { return k.stats().Requests > before || len(k.recorded()) == len(k.prompts) })
		time.Sleep(time.Duration(luck.IntN(150)) * time.Millisecond) // any instant of the work, not just after a line
		open := k.stats().InFlight
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() // says that it was killed
		paid := k.settle()
		recorded := k.recorded()
		cut := k.newlyUnrecorded(paid, recorded)
		// The bound is on what the run has in flight, an answer on its way to it included, which is over for the provider: who
		// learns how many calls may be open finds more than the provider takes at once where answers are slow to arrive.
		if cut > slots && !c.learns {
			t.Errorf("kill %d: %d answers were paid for and not recorded, with at most %d calls in flight", i+1, cut, slots)
		}
		if open > 0 {
			withOpen++
		}
		openAtKills += open
		unrecorded += cut
		var twice, lost int
		for hash, n := range paid {
			twice += n - 1
			if k.done[hash] > 0 && !recorded[hash] {
				lost++
			}
		}
		t.Logf("kill %2d: recorded %3d, open %2d, answered and cut off %d, called twice so far %d, lost %d", i+1, len(recorded), open, cut,
			twice, lost)
		if lost > 0 {
			t.Errorf("kill %d: %d results that were recorded are gone", i+1, lost)
		}
		k.remember(paid, recorded)
		if c.between != nil {
			c.between(k, i)
		}
	}
	before := len(k.done)
	if out, err := k.start().wait(); err != nil {
		t.Fatalf("last run: %v\n%s", err, out)
	}
	paid := k.settle()
	recorded := k.recorded()
	again := 0
	for hash, n := range k.done {
		again += paid[hash] - n
	}
	twice := 0
	for _, n := range paid {
		twice += n - 1
	}
	items := len(k.prompts)
	t.Logf("%d kills, %d with calls in flight (%d in all); recorded before the last run: %d of %d; lost: %d; "+
		"recorded and called again: %d; called twice: %d, all of them open at a kill",
		c.kills, withOpen, openAtKills, before, items, items-len(recorded), again, twice)
	if len(recorded) != items {
		t.Errorf("%d of %d items are recorded", len(recorded), items)
	}
	if again != 0 {
		t.Errorf("%d calls were made for items that were recorded", again)
	}
	if twice > unrecorded {
		t.Errorf("%d calls were made twice, but only %d were cut off by kills", twice, unrecorded)
	}
	if withOpen < c.kills/2 {
		t.Errorf("only %d of %d kills hit calls in flight", withOpen, c.kills)
	}
}

// killBench is an imitation in a process of its own, and runs against it.
type killBench struct {
	t         *testing.T
	dir       string
	url       string
	in, out   string
	args      []string
	prompts   []string          // of the input
	ids       map[string]string // of the requests recorded, by hash
	sets      bool              // items may have the same answer
	old       map[string]bool   // hashes of requests that were changed: the first new result of a run drops their results
	lines     int               // of the output when it was looked at last
	done      map[string]int    // how often each recorded request was paid for when it was seen to be recorded
	cut       map[string]int    // likewise of requests that were paid for and not recorded, or need not be any more
	lastStart *run
	simSays   *bytes.Buffer
}

// run is a run in a process of its own.
type run struct {
	*exec.Cmd
	out transcript
}

// launch starts sluice with its state below dir and the key in a variable.
func launch(t testing.TB, dir, key string, args ...string) *run {
	t.Helper()
	r := &run{Cmd: exec.Command("sluice", args...)}
	r.Env = append(os.Environ(), key+"="+sentinelKey, "XDG_STATE_HOME="+filepath.Join(dir, "state"))
	r.Stdout, r.Stderr = &r.out, &r.out
	r.start(t)
	return r
}

// start starts the process. The end of the test kills it.
func (r *run) start(t testing.TB) {
	t.Helper()
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.ProcessState == nil { // the test failed before its end
			r.Process.Kill()
			r.Wait()
		}
	})
}

// transcript is what a process said, which may be read while it goes on. The zero value is ready.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (t *transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(b)
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// wait waits for the end, and returns what was said. A run that waits for ever is killed before the test binary is.
func (r *run) wait() (string, error) {
	defer time.AfterFunc(5*time.Minute, func() { r.Process.Kill() }).Stop()
	err := r.Wait()
	return r.out.String(), err
}

func newKillBench(t *testing.T, items, slots int) *killBench {
	t.Helper()
	dir, err := os.MkdirTemp(os.Getenv("SLUICE_TEST_ROOT"), "kill-")
	if err != nil {
		t.Fatal(err)
	}
	k := &killBench{t: t, dir: dir, in: filepath.Join(dir, "in.jsonl"), out: filepath.Join(dir, "out.jsonl"),
		lastStart: &run{}, ids: map[string]string{}, done: map[string]int{}, cut: map[string]int{}, old: map[string]bool{}}
	k.write(items)
	server := exec.Command("sluice", "sim", "--concurrency", fmt.Sprint(slots), "--rpm", "12000", "--rate-limit", "burst=1s",
		"--latency", "150ms", "--jitter", "0.3")
	k.simSays = new(bytes.Buffer)
	server.Stderr = k.simSays
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Signal(os.Interrupt)
		if err := server.Wait(); err != nil {
			t.Errorf("sluice sim: %v\n%s", err, k.simSays)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	k.url = strings.TrimSpace(line)
	return k
}

// write makes the input so many lines long.
func (k *killBench) write(items int) {
	all := slices.Collect(strings.Lines(string(promptLines(items))))
	k.prompts = append(k.prompts, all[len(k.prompts):]...)
	k.save()
}

// change changes the requests of some items.
func (k *killBench) change(from, to int) {
	for i := from; i < to; i++ {
		prompt := k.prompts[i]
		if k.prompts[i] = strings.Replace(prompt, "Prompt", "Another prompt", 1); k.prompts[i] == prompt {
			continue
		}
		for hash, id := range k.ids {
			if id == fmt.Sprintf("p%d", i) { // it may go, and is no result of an item any more, but was no call cut off either
				k.cut[hash] = max(k.cut[hash], k.done[hash])
				delete(k.done, hash)
				k.old[hash] = true
			}
		}
	}
	k.save()
}

func (k *killBench) save() {
	k.t.Helper()
	if err := os.WriteFile(k.in, []byte(strings.Join(k.prompts, "")), 0o644); err != nil {
		k.t.Fatal(err)
	}
}

// start runs the command, always the same.
func (k *killBench) start() *run {
	k.lastStart = launch(k.t, k.dir, "OPENAI_API_KEY",
		append([]string{"run", "--provider", "openai", "--base-url", k.url + "/v1", k.in, "-o", k.out}, k.args...)...)
	return k.lastStart
}

// awaitLines waits until the output has so many lines.
func (k *killBench) awaitLines(n int) {
	k.await("the output to grow", func() bool { return bytes.Count(k.read(), []byte("\n")) >= n })
}

// read returns the lines of the output.
func (k *killBench) read() []byte {
	k.t.Helper()
	b, err := os.ReadFile(k.out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.t.Fatal(err)
	}
	return b
}

// settle waits until the imitation has no call open, and none comes that a dead run had sent, and returns how often it
// was paid for each request.
func (k *killBench) settle() map[string]int {
	var stats sim.Stats
	still := 0 // looks in a row
	k.await("calls to end", func() bool {
		before := stats.Requests
		time.Sleep(20 * time.Millisecond)
		stats = k.stats()
		if still++; stats.InFlight != 0 || stats.Requests != before {
			still = 0
		}
		return still == 10
	})
	return stats.Paid
}

func (k *killBench) await(what string, done func() bool) {
	await(k.t, what, done, &k.lastStart.out, k.simSays)
}

// anew asks by a connection of its own each time: it is accepted after those that a dead run had made.
var anew = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (k *killBench) stats() (stats sim.Stats) {
	k.t.Helper()
	resp, err := anew.Get(k.url + "/stats")
	if err != nil {
		k.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&stats); err != nil {
		k.t.Fatal(err)
	}
	return stats
}

// recorded returns the hash of each request in the output, whose lines must be whole, but for the last, and each for
// another item.
func (k *killBench) recorded() map[string]bool {
	k.t.Helper()
	hashes, ids := map[string]bool{}, map[string]bool{}
	for line := range bytes.Lines(k.read()) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			continue // torn by the kill
		}
		var result struct {
			CustomID string `json:"custom_id"`
			Response struct {
				Body struct {
					Choices []struct{ Message struct{ Content string } }
				}
			}
		}
		if err := json.Unmarshal(line, &result); err != nil {
			k.t.Fatalf("%v in the output line %s", err, line)
		}
		if len(result.Response.Body.Choices) != 1 {
			k.t.Fatalf("no answer in the output line %s", line)
		}
		text, ok := strings.CutPrefix(result.Response.Body.Choices[0].Message.Content, "sim:")
		if !ok || len(text) < 32 {
			k.t.Fatalf("the answer in the output line %s is not the imitation's", line)
		}
		if hashes[text[:32]] && !k.sets || ids[result.CustomID] {
			k.t.Errorf("recorded twice: %s", line)
		}
		hashes[text[:32]], ids[result.CustomID] = true, true
		k.ids[text[:32]] = result.CustomID
	}
	k.lines = len(ids)
	return hashes
}

// newlyUnrecorded counts the payments since the last kill that are not in the output.
func (k *killBench) newlyUnrecorded(paid map[string]int, recorded map[string]bool) (n int) {
	for hash, times := range paid {
		if !recorded[hash] {
			n += times - k.cut[hash]
			k.cut[hash] = times
		}
	}
	return n
}

// remember notes how often each recorded request was paid for when it was first seen to be recorded.
func (k *killBench) remember(paid map[string]int, recorded map[string]bool) {
	for hash := range recorded {
		if _, known := k.done[hash]; !known && !k.old[hash] {
			k.done[hash] = paid[hash]
		}
	}
}
