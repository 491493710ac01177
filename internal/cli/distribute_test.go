package cli_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/internal/suite"
)

// crew is a bench whose runs have their calls made by workers.
type crew struct {
	*killBench
	redis   string
	engine  *miniredis.Miniredis // nil: the engine of others
	workers []*run
}

// newCrew starts an imitation, and no workers yet. Its engine is one in this process, or that of SLUICE_TEST_REDIS.
func newCrew(t *testing.T, items, slots int) *crew {
	t.Helper()
	c := &crew{killBench: newKillBench(t, items, slots), redis: os.Getenv("SLUICE_TEST_REDIS")}
	if c.redis == "" {
		c.engine = miniredis.RunT(t)
		c.redis = "redis://" + c.engine.Addr()
	}
	c.args = []string{"--redis", c.redis, "--distribute", "--progress", "plain"}
	return c
}

// job is the name of the run's job, which is made of the output's path.
func (c *crew) job() string {
	h := sha256.New()
	fmt.Fprintf(h, "%d %s\n", len(c.out), c.out)
	return strings.TrimSuffix(filepath.Base(c.out), ".jsonl") + "-" + hex.EncodeToString(h.Sum(nil)[:6])
}

// hire starts a worker for the run alone.
func (c *crew) hire(args ...string) *run {
	c.t.Helper()
	r := launch(c.t, c.dir, "OPENAI_API_KEY", append([]string{"worker", "--redis", c.redis, "--job", c.job(), "--provider", "openai",
		"--base-url", c.url + "/v1", "--progress", "plain"}, args...)...)
	c.workers = append(c.workers, r)
	return r
}

// done fails the test unless the run ended well with every item recorded once.
func (c *crew) done(out string, err error) {
	c.t.Helper()
	if err != nil {
		for _, w := range c.workers {
			out += "\n" + w.out.String()
		}
		c.t.Fatalf("the run ended with %v:\n%s", err, out)
	}
	if n := len(c.recorded()); n != len(c.prompts) {
		c.t.Errorf("%d of %d items are recorded", n, len(c.prompts))
	}
}

// twice is how many calls were made more than once, when all have ended.
func (c *crew) twice() int { return again(c.settle()) }

// again is how many calls were made more than once.
func again(paid map[string]int) (n int) {
	for _, times := range paid {
		n += times - 1
	}
	return n
}

// TestKillDistributed kills, without a warning, the process that collects, and then those that work.
func TestKillDistributed(t *testing.T) {
	suite.FullOnly(t)
	t.Parallel()
	const slots = 24
	items := suite.Size(100, 700)
	c := newCrew(t, items, slots)
	const concurrent = 12
	hire := func() *run { return c.hire("--concurrency", fmt.Sprint(concurrent)) }
	workers := []*run{hire(), hire()}
	luck := rand.New(rand.NewPCG(5, 6))
	cut, before := 0, map[string]bool{}
	collects := c.start()
	collectors := suite.Size(1, 3)
	kills := collectors + suite.Size(0, 2) // a third worker that is lost with an item would make that poison
	for i := range kills {
		c.awaitLines((i + 1) * items / (kills + 3))
		time.Sleep(time.Duration(luck.IntN(100)) * time.Millisecond)
		if i < collectors {
			collects.Process.Kill()
			collects.Wait()
			recorded := c.recorded()
			for hash := range before {
				if !recorded[hash] {
					t.Errorf("kill %d: a result that was recorded is gone", i)
				}
			}
			before = recorded
			collects = c.start()
			continue
		}
		if n := again(c.stats().Paid); i == collectors && n > 0 {
			t.Errorf("%d calls were made twice, and no worker was killed yet", n)
		}
		w := i % len(workers)
		c.await("calls to be open", func() bool { // or all to be made, while a collector waited for the lock of the one before it
			stats := c.stats()
			return stats.InFlight > 8 || len(stats.Paid) == items
		})
		cut += 2 * concurrent // open, and with an answer on its way to the engine
		workers[w].Process.Kill()
		workers[w].Wait()
		workers[w] = hire()
	}
	c.done(collects.wait())
	twice := c.twice()
	t.Logf("%d calls were made twice, of %d at most that were open when a worker was killed", twice, cut)
	if twice > cut {
		t.Error("these are too many")
	}
}

// TestADistributedRunIsDrained interrupts the run, and then a worker.
func TestADistributedRunIsDrained(t *testing.T) {
	suite.FullOnly(t)
	t.Parallel()
	items := suite.Size(120, 300)
	c := newCrew(t, items, 16)
	first := c.hire("--rpm", "600", "--rate-limit", "burst=1s") // so slow that items are left, however late this test looks
	collects := c.start()
	c.awaitLines(10)
	collects.Process.Signal(os.Interrupt)
	out, err := collects.wait()
	if collects.ProcessState.ExitCode() != 130 || !strings.Contains(out, "resume with the same command") {
		t.Fatalf("the run ended with %v:\n%s", err, out)
	}
	recorded, paid := len(c.recorded()), len(c.settle())
	if recorded != paid || recorded == len(c.prompts) {
		t.Errorf("%d of %d items are recorded after an interrupt, and %d calls were made", recorded, len(c.prompts), paid)
	}
	collects = c.start()
	c.awaitLines(recorded + 10)
	if c.engine != nil {
		if held := c.engine.Dump(); !strings.Contains(held, "Prompt number") || strings.Contains(held, sentinelCore) {
			t.Errorf("the engine has no prompts, or the key:\n%s", held)
		}
	}
	first.Process.Signal(os.Interrupt)
	if said, err := first.wait(); err != nil || !strings.Contains(said, "given back") {
		t.Errorf("the worker ended with %v:\n%s", err, said)
	}
	c.hire()
	c.done(collects.wait())
	if twice := c.twice(); twice != 0 {
		t.Errorf("%d calls were made twice", twice)
	}
}

// TestOneInterruptEndsARunWhoseEngineIsGone takes the engine away, and gives the next run an empty one at its place.
func TestOneInterruptEndsARunWhoseEngineIsGone(t *testing.T) {
	suite.FullOnly(t)
	t.Parallel()
	c := newCrew(t, 120, 16)
	engine := newMortal(c, "engine") // in a process of its own: one that is closed within a script answers what no engine does
	w := c.hire("--rpm", "1200", "--rate-limit", "burst=1s")
	collects := c.start()
	c.awaitLines(20)
	engine.kill()
	c.await("both to say so", func() bool {
		return strings.Contains(collects.out.String(), "waiting for Redis at") && strings.Contains(w.out.String(), "waiting for Redis at")
	})
	collects.Process.Signal(os.Interrupt)
	hung := time.AfterFunc(time.Minute, func() { collects.Process.Kill() })
	out, err := collects.wait()
	if !hung.Stop() || collects.ProcessState.ExitCode() != 130 || !strings.Contains(out, "has not responded for 10s") {
		t.Fatalf("the run ended with %v:\n%s", err, out)
	}
	engine.start()
	c.hire() // the first may have ended
	c.done(c.start().wait())
	t.Logf("%d calls were made twice", c.twice())
}

// mortal is an engine that can be killed and started again, with nothing of what it had.
type mortal struct {
	crew    *crew
	address string
	command []string
	process *exec.Cmd
}

// newMortal starts an engine by a command that ends in its port, for the runs of c.
func newMortal(c *crew, command ...string) *mortal {
	m := &mortal{crew: c, address: freeAddress()}
	m.command = append(command, m.address[strings.LastIndex(m.address, ":")+1:])
	m.start()
	c.t.Cleanup(m.kill)
	c.redis = "redis://" + m.address
	c.args[1] = c.redis
	return m
}

func (m *mortal) start() {
	m.crew.t.Helper()
	m.process = exec.Command(m.command[0], m.command[1:]...)
	if err := m.process.Start(); err != nil {
		m.crew.t.Fatal(err)
	}
	m.crew.await("the engine to listen", func() bool {
		conn, err := net.Dial("tcp", m.address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

func (m *mortal) kill() {
	m.process.Process.Kill()
	m.process.Wait()
}

// engine PORT is an imitation of an engine.
func engine() {
	if err := miniredis.NewMiniRedis().StartAddr("127.0.0.1:" + os.Args[1]); err != nil {
		log.Fatal(err)
	}
	select {}
}

// TestADistributedRunIsTheSame compares the output of a run here and of one by workers, with a schema that some answers miss.
func TestADistributedRunIsTheSame(t *testing.T) {
	suite.FullOnly(t)
	t.Parallel()
	c := newCrew(t, 60, 16)
	schema := filepath.Join(c.dir, "schema.json")
	if err := os.WriteFile(schema, []byte(`{"type":"string","pattern":"^sim:[0-7]"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	common := []string{"--reject", "length", "--max-attempts", "2", "--price", "2/8"}
	far := c.args
	var outputs [2][]string
	for i, args := range [][]string{nil, far} {
		c.out = filepath.Join(c.dir, fmt.Sprintf("out%d.jsonl", i))
		if c.args = append(slices.Clone(args), common...); i == 1 {
			c.args = append(c.args, "--redis", c.redis)
			c.hire()
		}
		if out, err := c.start().wait(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		outputs[i] = sortedLines(c.read())
	}
	if diff := cmp.Diff(outputs[0], outputs[1]); diff != "" {
		t.Errorf("the outputs differ, - here and + by a worker:\n%s", diff)
	}
}

// sortedLines are the lines of an output without what time and chance make of them.
func sortedLines(b []byte) []string {
	b = regexp.MustCompile(`"(wait|queued|cooldown|backoff|latency)_ms":\d+`).ReplaceAll(b, []byte(`"${1}_ms":0`))
	b = regexp.MustCompile(`"throttles":\d+|"request_id":"[^"]*"|"created":\d+|"(id|system_fingerprint)":"chatcmpl[^"]*"`).ReplaceAll(b, nil)
	return slices.Sorted(strings.Lines(string(b)))
}
