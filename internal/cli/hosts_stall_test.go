//go:build unix

package cli_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/suite"
)

// TestAProcessThatStoodStillRequestsNothingAgain stops a worker for longer than its lease. What it had not started goes to others.
func TestAProcessThatStoodStillRequestsNothingAgain(t *testing.T) {
	suite.FullOnly(t)
	h := newHosts(t, 1500, 300*time.Millisecond)
	stalls(t, h, 6000, 1, func() time.Duration { return 9 * time.Second })
}

// BenchmarkStalls stops workers and the run 20 times, for 1 to 30 s, by SIGSTOP, and counts requests:
//
//	go test ./internal/cli -run '^$' -bench Stalls -benchtime 1x -timeout 0
func BenchmarkStalls(b *testing.B) {
	for b.Loop() {
		h := newHosts(b, 7200, 300*time.Millisecond)
		random := rand.New(rand.NewPCG(1, 2))
		stalls(b, h, 1200, 20, func() time.Duration { return time.Second + time.Duration(random.Int64N(int64(29*time.Second))) })
	}
}

// stalls runs a batch with three workers and stops processes so many times, at most two at once. No item may be requested again unless
// its first request was open in a worker that was stopped, or its lease had just been checked there when it was stopped.
func stalls(tb testing.TB, h *hosts, rpm, times int, long func() time.Duration) {
	h.startEngine(h.dir)
	h.startWorkers(3, 24, "--rpm", strconv.Itoa(rpm))
	start := time.Now()
	collector := h.collector()
	h.await(60)
	processes := slices.Clone(h.workers)
	if times > 1 {
		processes = append(processes, collector)
	}
	free := make(chan int, len(processes))
	for i := range processes {
		free <- i
	}
	var mu sync.Mutex
	var stopped sync.WaitGroup
	stops := make(map[string][]time.Time) // by worker, and when it was continued
	seats := make(chan struct{}, 2)
	for range times {
		seats <- struct{}{}
		i, d := <-free, long()
		name := fmt.Sprint("worker-", i)
		stopped.Go(func() {
			from := time.Now()
			processes[i].Process.Signal(syscall.SIGSTOP)
			time.Sleep(d)
			mu.Lock()
			stops[name] = append(stops[name], from, time.Now())
			mu.Unlock()
			processes[i].Process.Signal(syscall.SIGCONT)
			time.Sleep(time.Second)
			free <- i
			<-seats
		})
	}
	stopped.Wait()
	if err := collector.Wait(); err != nil {
		tb.Errorf("the run ended with %v", err)
	}

	const about = 500 * time.Millisecond // a response takes 300 ms
	h.provider.mu.Lock()
	arrived := h.provider.arrived
	h.provider.mu.Unlock()
	first := make(map[string]arrival)
	open, checked, unwarranted, most := 0, 0, 0, 0
	for i, a := range arrived {
		within, _ := slices.BinarySearchFunc(arrived, a.at.Add(time.Minute), func(a arrival, t time.Time) int { return a.at.Compare(t) })
		most = max(most, within-i)
		was, again := first[a.item]
		if !again {
			first[a.item] = a
			continue
		}
		near := func(a arrival) bool {
			return slices.ContainsFunc(stops[a.worker], func(t time.Time) bool { return a.at.After(t.Add(-about)) && a.at.Before(t.Add(about)) })
		}
		switch {
		case near(was):
			open++
		case near(a) && checked < 3*times: // of 24 that a worker may have been given
			checked++
		default:
			unwarranted++
			tb.Logf("%s: by %s, and %v later by %s", a.item, was.worker, a.at.Sub(was.at), a.worker)
		}
	}
	recorded, failed := h.recorded()
	tb.Logf("%d stops in %v: %d requests repeated that were open, %d that were checked, %d others; %d in the busiest minute, of %d; %d of %d recorded, %d failed",
		times, time.Since(start).Round(time.Second), open, checked, unwarranted, most, rpm, len(recorded), h.items, failed)
	if unwarranted > 0 || most > rpm || len(recorded) != h.items || failed > 0 {
		tb.Error("requested twice, above the quota, or lost")
	}
}

// TestResponsesThatArriveDuringAStallAreUsed stops a run for longer than its requests may take. Their responses arrive meanwhile.
func TestResponsesThatArriveDuringAStallAreUsed(t *testing.T) {
	suite.FullOnly(t)
	h := newHosts(t, 64, time.Second)
	run := h.sluice("run", "run", h.in, "-o", h.out, "--provider", "openai", "--base-url", h.url+"/v1", "--concurrency", "16", "--timeout", "3s", "--progress", "none")
	for h.provider.openNow() < 14 {
		time.Sleep(5 * time.Millisecond)
	}
	run.Process.Signal(syscall.SIGSTOP)
	time.Sleep(6 * time.Second)
	run.Process.Signal(syscall.SIGCONT)
	if err := run.Wait(); err != nil {
		t.Errorf("the run ended with %v", err)
	}
	again := 0
	for _, n := range h.provider.calls {
		again += n - 1
	}
	if recorded, failed := h.recorded(); again > 0 || len(recorded) != h.items || failed > 0 {
		t.Errorf("%d requests repeated; %d of %d recorded, %d failed", again, len(recorded), h.items, failed)
	}
}
