package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

func testTerms() []byte {
	terms := batch.Terms{Attempts: 2, Throttles: 3, Timeout: time.Minute}
	return terms.Append(nil)
}

// withSource runs a test in a bubble with a Source, and a collector of the only job.
func withSource(t *testing.T, cfg SourceConfig, test func(t *testing.T, at *Cluster, k *Collector, s *Source)) {
	withJob(t, testTerms(), func(t *testing.T, at *Cluster, k *Collector) {
		s, err := at.Source(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		test(t, at, k, s)
		if _, err := s.Close(nil); err != nil {
			t.Error(err)
		}
	})
}

// withJob runs a test in a bubble with a collector of a job.
func withJob(t *testing.T, settings []byte, test func(t *testing.T, at *Cluster, k *Collector)) {
	synctest.Test(t, func(t *testing.T) {
		at, err := NewSite(t).Open(t.Context(), Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer at.Close()
		k, err := at.Collect(t.Context(), JobConfig{Name: "job", Settings: settings})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		test(t, at, k)
	})
}

func addItem(t *testing.T, k *Collector, n int, model string) {
	t.Helper()
	item := &batch.Task{ID: "a", Number: n + 1, Hash: work.HashOf([]byte("x")), Model: model, Endpoint: provider.ChatCompletions, Body: []byte("{}")}
	if err := k.Add(t.Context(), Task{Number: int64(n), Payload: batch.AppendTask(nil, item)}); err != nil {
		t.Fatal(err)
	}
}

func only(t *testing.T, at *Cluster) JobStatus {
	t.Helper()
	jobs, err := at.Jobs(t.Context())
	if err != nil || len(jobs) != 1 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	return jobs[0]
}

func running(string) limits.LaneSnapshot { return limits.LaneSnapshot{} }

// A worker ends in the moment in which a task that it has fetched is taken. Who would do it and give it back as well would have the
// call made twice.
func TestATaskIsDoneOrGivenBack(t *testing.T) {
	for _, taken := range []bool{true, false} {
		withSource(t, SourceConfig{}, func(t *testing.T, at *Cluster, k *Collector, s *Source) {
			addItem(t, k, 1, "m")
			f := s.fetch(t.Context())
			got := <-f.tasks
			if taken {
				got.claim()
			}
			f.stop()
			if n := only(t, at).Held; (n == 1) != taken {
				t.Errorf("taken is %v, and %d are held", taken, n)
			}
			if !taken && got.claim() {
				t.Error("what was given back can be taken")
			}
		})
	}
}

// The next task that a worker waits for is not one that is given back.
func TestWhatIsGivenBackIsPassedOver(t *testing.T) {
	source := &Source{cfg: SourceConfig{IdleExit: time.Millisecond}, news: make(chan struct{}, 1), idle: time.Now()}
	f := &fetching{source: source, tasks: make(chan *fetched, 2)}
	back, next := &fetched{taken: make(chan struct{})}, &fetched{taken: make(chan struct{})}
	back.claim()
	f.tasks <- back
	f.tasks <- next
	if got, ok := source.await(t.Context(), f); !ok || got != next {
		t.Errorf("got %v, %v", got, ok)
	}
}

func TestASourceEndsAtItsLimits(t *testing.T) {
	withSource(t, SourceConfig{MaxItems: 2, Lane: running}, func(t *testing.T, at *Cluster, k *Collector, s *Source) {
		for n := range 3 {
			addItem(t, k, n, "m")
		}
		n := 0
		for item, err := range s.All(t.Context()) {
			if err != nil {
				t.Fatalf("item %d: %+v, %v", n, item, err)
			}
			if n++; n == 1 {
				s.Done(item, &batch.Answer{Input: item.Hash.String(), Kind: sluice.OK})
			}
		}
		if j := only(t, at); n != 2 || j.Done != 1 {
			t.Errorf("%d items were given, and %+v", n, j)
		}
		if returned, err := s.Close(nil); returned != 1 || err != nil {
			t.Errorf("%d items were given back, %v; want 1", returned, err)
		}
		if j := only(t, at); j.Held != 0 {
			t.Errorf("%d items are held by a worker that ended", j.Held)
		}
	})
	withSource(t, SourceConfig{IdleExit: time.Minute, Lane: running}, func(t *testing.T, at *Cluster, k *Collector, s *Source) {
		began := time.Now()
		go func() {
			time.Sleep(30 * time.Second)
			addItem(t, k, 0, "m")
		}()
		for item, err := range s.All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				time.Sleep(10 * time.Second)
				s.Done(item, &batch.Answer{Input: item.Hash.String(), Kind: sluice.OK})
			}()
		}
		if took := time.Since(began); took < 99*time.Second || took > 101*time.Second {
			t.Errorf("it ended after %v: want a minute after the item, which was there from 30 to 40 s", took)
		}
		if st := s.Status(); st != "waiting for a run that distributes requests" {
			t.Errorf("%q", st)
		}
		k.Close()
		time.Sleep(2 * time.Second) // the status is a second old at most
		if st := s.Status(); !strings.Contains(st, "the run of job job has stopped, and must be started again") {
			t.Errorf("without a collector: %q", st)
		}
	})
}

// One model pauses for long, and its items are at the head of the queue.
// A task that was done elsewhere, or whose run is over, is withdrawn: its model may pause here for hours.
func TestASourceEndsWhoseTaskIsElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		away   func(t *testing.T, at *Cluster, k *Collector, s *Source, item *batch.Task)
		answer bool // the item ends with an answer
	}{
		"the job is over": {away: func(t *testing.T, _ *Cluster, k *Collector, _ *Source, _ *batch.Task) {
			if err := k.Finish(t.Context()); err != nil {
				t.Error(err)
			}
		}},
		"another worker has it": {away: func(t *testing.T, at *Cluster, _ *Collector, s *Source, item *batch.Task) {
			if _, err := at.client.do(t.Context(), "XCLAIM", keysOf("job")[1], "w", "other", "0", s.open[item].ID); err != nil {
				t.Error(err)
			}
		}},
		"the engine has lost the job, and its run does not come back": {answer: true, away: func(t *testing.T, at *Cluster, k *Collector, _ *Source, _ *batch.Task) {
			k.Close()
			if _, err := at.client.do(t.Context(), "FLUSHALL"); err != nil {
				t.Error(err)
			}
		}},
	} {
		withSource(t, SourceConfig{IdleExit: time.Minute, Lane: running}, func(t *testing.T, at *Cluster, k *Collector, s *Source) {
			addItem(t, k, 0, "m")
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			for item, err := range s.All(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				c.away(t, at, k, s, item)
				go func() {
					if c.answer {
						s.Done(item, &batch.Answer{Input: item.Hash.String(), Kind: sluice.OK})
						return
					}
					select {
					case <-item.Withdrawn:
					case <-ctx.Done():
					}
					s.Done(item, nil)
				}()
			}
			if took := time.Since(began); took < time.Minute || took > 2*time.Minute+10*time.Second {
				t.Errorf("%s: it ended after %v", name, took)
			}
		})
	}
}

func TestAWorkerEndsThoughItsLanePausesWhenTheRunIsOver(t *testing.T) {
	terms := batch.Terms{Attempts: 2}
	withJob(t, terms.Append(nil), func(t *testing.T, at *Cluster, k *Collector) {
		sched, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
		if err != nil {
			t.Fatal(err)
		}
		defer sched.Close()
		permit, err := sched.Acquire(t.Context(), sluice.Call{Lane: "m"}) // nothing else is sent
		if err != nil {
			t.Fatal(err)
		}
		defer permit.Release(sluice.Outcome{})
		source, err := at.Source(t.Context(), SourceConfig{IdleExit: time.Minute, Lane: running})
		if err != nil {
			t.Fatal(err)
		}
		p, _ := provider.Lookup("openai-compatible")
		w, err := batch.NewWorker(batch.Config{Provider: p, BaseURL: "http://up.test/v1",
			Scheduler: func(provider.Provider) (*sluice.Scheduler, error) { return sched, nil }}, source)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 40 { // more than wait for a permit
			addItem(t, k, n, "m")
		}
		time.AfterFunc(10*time.Second, func() {
			if err := k.Finish(t.Context()); err != nil {
				t.Error(err)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		rep, err := w.Run(ctx)
		if took := time.Since(began); err != nil || took < time.Minute || took > 80*time.Second || rep.Done+rep.Failed > 0 {
			t.Errorf("%+v, %v after %v", rep, err, took)
		}
		if returned, err := source.Close(nil); returned > 0 || err != nil {
			t.Errorf("%d items were given back, %v", returned, err)
		}
	})
}

func TestASourceServesOtherModelsWhileOnePauses(t *testing.T) {
	pause := time.Now().Add(100 * 365 * 24 * time.Hour)
	lane := func(model string) (l limits.LaneSnapshot) {
		if model == "slow" {
			l.Until = pause
		}
		return l
	}
	withSource(t, SourceConfig{MaxItems: 5, Lane: lane}, func(t *testing.T, at *Cluster, k *Collector, s *Source) {
		for n := range 105 {
			model := "slow"
			if n >= 100 {
				model = "m"
			}
			addItem(t, k, n, model)
		}
		for item, err := range s.All(t.Context()) {
			if err != nil || item.Model != "m" {
				t.Fatalf("%+v, %v", item, err)
			}
		}
		if j := only(t, at); j.Delayed != 100 {
			t.Errorf("%+v, want the items of the paused model put aside", j)
		}
	})
}

func TestASourceRefusesWhatItDoesNotUnderstand(t *testing.T) {
	withSource(t, SourceConfig{MaxItems: 1, Lane: running}, func(t *testing.T, at *Cluster, k *Collector, s *Source) {
		if err := k.Add(t.Context(), Task{Number: 0, Payload: []byte("garbage")}); err != nil {
			t.Fatal(err)
		}
		addItem(t, k, 1, "m")
		for item, err := range s.All(t.Context()) {
			if err != nil || item.Number != 2 {
				t.Errorf("%+v, %v", item, err)
			}
		}
		for o, err := range k.Results(t.Context()) {
			a, wrong := batch.ParseAnswer(o.Payload)
			if err != nil || wrong != nil || o.Number != 0 || !a.Refused || a.Kind != sluice.BadRequest {
				t.Errorf("outcome %+v, %v, %v", a, err, wrong)
			}
			break
		}
	})
}

func TestASourceLeavesJobsThatItDoesNotUnderstand(t *testing.T) {
	good := string(testTerms())
	change := func(old, by string) string { return strings.Replace(good, old, by, 1) }
	for _, settings := range []string{"\x00\x01", change(" 1 ", " 2 "), change(`"attempts":2`, `"attempts":0`),
		change(`"attempts":2`, `"attempts":2,"schema":"{\"type\":7}"`), change(`"attempts":2`, `"attempts":2,"schema":"{\"$ref\":\"file:///etc/passwd\"}"`)} {
		withJob(t, []byte(settings), func(t *testing.T, at *Cluster, k *Collector) {
			addItem(t, k, 0, "m")
			for _, job := range []string{"job", ""} {
				s, err := at.Source(t.Context(), SourceConfig{Job: job, IdleExit: 3 * time.Second, Lane: running})
				if err != nil {
					t.Fatal(err)
				}
				given := 0
				for item, err := range s.All(t.Context()) {
					if given++; !isA[*TermsError](err) {
						t.Errorf("%+v, %v", item, err)
					}
				}
				synctest.Wait() // what was fetched meanwhile is given back
				j := only(t, at)
				if want := len(job) / 3; given != want || j.Held != 0 || j.Queued+j.Delayed != 1 {
					t.Errorf("%q, a worker of %q: %d errors, want %d, and %+v", settings, job, given, want, j)
				}
				if _, err := s.Close(nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// What waits behind tasks of a model that pauses is reached however long it takes to put those aside, though what is due again is
// given first.
func TestTasksOfAPausedModelComeBackMoreSlowlyThanTheyArePutAside(t *testing.T) {
	const tasks, pause, each = 2000, 24 * time.Hour, 100 * time.Millisecond
	var due []time.Duration // in order
	fresh, now := tasks, time.Duration(0)
	for ; fresh > 0 && now < time.Hour; now += each {
		if len(due) > 0 && due[0] <= now {
			due = due[1:]
		} else {
			fresh--
		}
		due = append(due, now+leave(pause-now, now))
	}
	if !slices.IsSorted(due) || now > 2*tasks*each {
		t.Errorf("after %v, %d of %d tasks have not been given yet", now, fresh, tasks)
	}
}

// A Source is closed between the giving of tasks and their results.
func TestASourceThatIsClosedGivesBackWhatComesLater(t *testing.T) {
	var s *Source
	first := true
	lane := func(string) (l limits.LaneSnapshot) {
		if !first {
			if _, err := s.Close(nil); err != nil {
				t.Error(err)
			}
		}
		first = false
		return l
	}
	withSource(t, SourceConfig{Lane: lane}, func(t *testing.T, at *Cluster, k *Collector, made *Source) {
		s = made
		addItem(t, k, 0, "m")
		addItem(t, k, 1, "m")
		var given []*batch.Task
		for item, err := range s.All(t.Context()) {
			if err == nil {
				given = append(given, item)
			}
		}
		for _, item := range given {
			s.Done(item, &batch.Answer{Input: item.Hash.String(), Kind: sluice.OK})
		}
		if j := only(t, at); len(given) != 1 || j.Done != 0 {
			t.Errorf("%d given, and %+v", len(given), j)
		}
		next, err := at.Source(t.Context(), SourceConfig{MaxItems: 2, IdleExit: time.Minute, Lane: running})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for range next.All(t.Context()) {
			n++
		}
		if _, err := next.Close(nil); n != 2 || err != nil {
			t.Errorf("%d were given again, %v", n, err)
		}
	})
}

// Items that are done make room for others, also one whose result is too large to be handed over.
func TestASourceGivesMoreAsItemsAreDone(t *testing.T) {
	withSource(t, SourceConfig{IdleExit: time.Minute, Lane: running}, func(t *testing.T, at *Cluster, k *Collector, s *Source) {
		const items = ready + 3
		for n := range items {
			addItem(t, k, n, "m")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		n := 0
		for item, err := range s.All(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			a := &batch.Answer{Input: item.Hash.String(), Kind: sluice.OK}
			if n++; n == 1 {
				a.Payload = make([]byte, MaxPayload+1)
			}
			s.Done(item, a)
		}
		if j := only(t, at); n != items || j.Done != items {
			t.Errorf("%d of %d were given, and %+v", n, items, j)
		}
	})
}
