//go:build unix

package cluster_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/cluster"
)

// processTasks are enough for a run of about ten seconds with three workers, so that every blow falls into it.
const processTasks = 6000

// TestAsProcess is no test by itself: other tests start this program again with it, as a worker or a collector, so that they
// can be killed.
func TestAsProcess(t *testing.T) {
	url, role := os.Getenv("SLUICE_TEST_ENGINE"), os.Getenv("SLUICE_TEST_ROLE")
	switch role {
	case "worker":
		w := work(t, openBriefly(t, cluster.SiteAt(url)))
		for range 8 {
			go func() {
				for {
					task, err := w.Next(t.Context())
					if err != nil {
						return
					}
					time.Sleep(10 * time.Millisecond)
					w.Complete(t.Context(), task, append(task.Payload, " done"...))
				}
			}()
		}
		<-t.Context().Done()
		select {}
	case "collector":
		collectAsProcess(t, url, os.Getenv("SLUICE_TEST_JOURNAL"))
	default:
		t.Skip("started by other tests")
	}
}

// collectAsProcess is a batch: what its journal has is done.
func collectAsProcess(t *testing.T, url, file string) {
	done := journal(t, file)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var k *cluster.Collector
	var held *cluster.HeldError
	for c := openBriefly(t, cluster.SiteAt(url)); k == nil; {
		if k, err = c.Collect(t.Context(), cluster.JobConfig{Name: "killed", Window: 200}); err != nil && !errors.As(err, &held) {
			t.Fatal(err)
		}
	}
	go func() {
		for n := range int64(processTasks) {
			if done[n] == 0 {
				k.Add(t.Context(), cluster.Task{Number: n, Payload: []byte(strconv.FormatInt(n, 10))})
			}
		}
	}()
	left := processTasks - len(done)
	for o, err := range k.Results(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(f, "%d %s\n", o.Number, o.Payload); err != nil {
			t.Fatal(err)
		}
		k.Recorded(o.Number)
		if left--; left == 0 {
			break
		}
	}
	finish(t, k)
}

// journal counts the lines of each number.
func journal(t *testing.T, file string) map[int64]int {
	t.Helper()
	done := map[int64]int{}
	f, err := os.Open(file)
	if err != nil {
		return done
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		number, rest, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || (rest != number+" done" && rest != "") {
			t.Fatalf("journal: %q", lines.Text())
		}
		done[n]++
	}
	return done
}

// start runs this program as a worker or a collector.
func start(t *testing.T, role, url, file string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestAsProcess$", "-test.timeout", "5m")
	cmd.Env = append(os.Environ(), "SLUICE_TEST_ENGINE="+url, "SLUICE_TEST_ROLE="+role, "SLUICE_TEST_JOURNAL="+file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

// setBack starts the engine with an append-only file that lacks its end, as after a loss of power.
func (s *realServer) setBack(bytes int64) {
	files, err := filepath.Glob(filepath.Join(s.dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) == 0 {
		s.t.Fatalf("no append-only file: %v", err)
	}
	file := files[len(files)-1]
	was, err := os.Stat(file)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.Truncate(file, max(0, was.Size()-bytes)); err != nil {
		s.t.Fatal(err)
	}
	s.start()
}

func TestKillsOfWorkersOfTheCollectorAndOfTheEngineLoseNothing(t *testing.T) {
	engine := newServer(t, "--appendonly", "yes", "--appendfsync", "everysec")
	url, file := engine.url(), filepath.Join(t.TempDir(), "journal")
	workers := []*exec.Cmd{start(t, "worker", url, ""), start(t, "worker", url, ""), start(t, "worker", url, "")}
	collector := start(t, "collector", url, file)
	reached := func(part int) {
		t.Helper()
		ctx := patient(t)
		for len(journal(t, file)) < processTasks*part/8 {
			if err := ctx.Err(); err != nil {
				t.Fatalf("%d of %d are recorded: %v", len(journal(t, file)), processTasks, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}

	reached(1)
	workers[0].Process.Kill()
	start(t, "worker", url, "")
	reached(2)
	workers[1].Process.Signal(syscall.SIGSTOP)
	reached(3)
	engine.stop()
	time.Sleep(time.Second)
	engine.start()
	reached(4)
	workers[1].Process.Signal(syscall.SIGCONT)
	collector.Process.Kill()
	collector.Wait()
	collector = start(t, "collector", url, file)
	reached(5)
	engine.stop()
	engine.setBack(200_000) // a second of it, about
	reached(6)
	engine.do("FLUSHALL")
	reached(8)

	if err := collector.Wait(); err != nil {
		t.Fatalf("collector: %v", err)
	}
	for n, times := range journal(t, file) {
		if times != 1 {
			t.Errorf("%d is recorded %d times", n, times)
		}
	}
}
