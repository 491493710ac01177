package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// A call is made by Do, which says what became of it. The answers here are what a provider may say.
func Example() {
	scheduler, err := sluice.New(sluice.Config{Limits: sluice.Limits{RPM: 600}}) // without Limits, they are learned
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Close()

	attempt := func(_ context.Context, p *sluice.Permit) sluice.Outcome {
		if p.Attempt() == 1 {
			return sluice.Outcome{Kind: sluice.ServerError, Err: errors.New("500 Internal Server Error")}
		}
		return sluice.Outcome{HasUsage: true, Usage: sluice.Usage{Input: 12, Output: 30}}
	}
	tally, err := scheduler.Do(context.Background(), sluice.Call{ID: "why-blue", Lane: "gpt-4o-mini"}, attempt)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d attempts, %d tokens out\n", tally.Attempts, tally.Usage.Output)
	// Output: 2 attempts, 30 tokens out
}

func ExampleNew() {
	// An account of 60 requests a minute whose bucket holds one: told limits are ceilings, whatever headers say.
	s, err := sluice.New(sluice.Config{Limits: sluice.Limits{RPM: 60, Concurrency: 4}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()

	_, err = sluice.New(sluice.Config{Limits: sluice.Limits{RPM: -1}})
	fmt.Println(err)
	// Output: config: Limits.RPM is -1: a limit cannot be negative
}

func ExamplePermit_Release() {
	s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()

	permit, err := s.Acquire(context.Background(), sluice.Call{Lane: "my-model"})
	if err != nil {
		fmt.Println(err)
		return
	}
	// The provider refused, and said for how long: the lane pauses, and the budget is given back.
	permit.Release(sluice.Outcome{Kind: sluice.RateLimit, Wait: time.Minute})

	fmt.Println(s.TryAcquire(sluice.Call{Lane: "my-model"}) == nil, s.Snapshot().Lanes[0].Pause)
	// Output: true rate_limit
}

func ExampleEvent() {
	s, err := sluice.New(sluice.Config{Observer: sluice.ObserverFunc(func(e sluice.Event) {
		if e.Type == limits.EventLimitsChanged {
			fmt.Printf("%s: %v is %d a minute\n", e.Lane, e.Dimension, e.Limit)
		}
	})})
	if err != nil {
		fmt.Println(err)
		return
	}
	permit, err := s.Acquire(context.Background(), sluice.Call{Lane: "my-model"})
	if err != nil {
		fmt.Println(err)
		return
	}
	permit.Release(sluice.Outcome{Readings: []limits.Reading{
		{Dimension: limits.Requests, Limit: 900, Remaining: 899, Reset: 67 * time.Millisecond},
	}})
	s.Close()
	// Output: my-model: rpm is 900 a minute
}

// A throttled try is repeated when the lane allows it, and spends no attempt.
func ExampleScheduler_Do() {
	s, err := sluice.New(sluice.Config{Limits: sluice.Limits{RPM: 6000, Concurrency: 8}})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	answers := []sluice.Outcome{
		{Kind: sluice.RateLimit, Wait: 20 * time.Millisecond, Err: errors.New("429 Too Many Requests")},
		{HasUsage: true, Usage: sluice.Usage{Input: 12, Output: 30}},
	}
	tally, err := s.Do(context.Background(), sluice.Call{ID: "item 1", Lane: "gpt-4o"},
		func(ctx context.Context, p *sluice.Permit) sluice.Outcome {
			answer := answers[0] // here: one request, and what came of it
			answers = answers[1:]
			return answer
		})
	fmt.Println(err, tally.Attempts, tally.Throttles, tally.Usage.Output)
	// Output: <nil> 1 1 30
}

// What cannot succeed comes back as a CallError that says why.
func ExampleCallError() {
	s, err := sluice.New(sluice.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	_, err = s.Do(context.Background(), sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome {
		return sluice.Outcome{Kind: sluice.Auth, Err: errors.New("401 invalid x-api-key")}
	})
	if ce := new(sluice.CallError); errors.As(err, &ce) {
		fmt.Println(ce.Kind, ce.Kind.Fatal(), err)
	}
	// Output: auth true 401 invalid x-api-key
}

// Acquire is for callers with a loop of their own. Whatever becomes of the call, its permit is released once.
func ExampleScheduler_Acquire() {
	s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	p, err := s.Acquire(context.Background(), sluice.Call{Cost: sluice.Cost{Input: 100, MaxOutput: 50}})
	if err != nil {
		log.Fatal(err)
	}
	p.Sent() // the request leaves now
	p.Release(sluice.Outcome{HasUsage: true, Usage: sluice.Usage{Input: 98, Output: 20}})
	fmt.Println("attempt", p.Attempt())
	// Output: attempt 1
}

// TryAcquire never waits.
func ExampleScheduler_TryAcquire() {
	s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	first := s.TryAcquire(sluice.Call{})
	second := s.TryAcquire(sluice.Call{})
	fmt.Println(first != nil, second != nil)
	first.Release(sluice.Outcome{})
	third := s.TryAcquire(sluice.Call{})
	fmt.Println(third != nil)
	third.Release(sluice.Outcome{})
	// Output:
	// true false
	// true
}

func ExampleObserver() {
	var granted, throttled atomic.Int64
	s, err := sluice.New(sluice.Config{Observer: sluice.ObserverFunc(func(e sluice.Event) {
		switch e.Type {
		case limits.EventSlotAcquired:
			granted.Add(1)
		case limits.EventThrottled:
			throttled.Add(1)
		}
	})})
	if err != nil {
		log.Fatal(err)
	}

	tries := 0
	s.Do(context.Background(), sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome {
		if tries++; tries == 1 {
			return sluice.Outcome{Kind: sluice.RateLimit, Wait: time.Millisecond}
		}
		return sluice.Outcome{}
	})
	s.Close() // the Observer has heard all
	fmt.Println(granted.Load(), "granted,", throttled.Load(), "throttled")
	// Output: 2 granted, 1 throttled
}

func ExampleScheduler_Snapshot() {
	s, err := sluice.New(sluice.Config{Limits: sluice.Limits{RPM: 60, Concurrency: 4, Burst: time.Minute}})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	p, err := s.Acquire(context.Background(), sluice.Call{Lane: "claude-haiku"})
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range s.Snapshot().Lanes {
		fmt.Printf("%s: %d of %d in flight, %d waiting\n", l.Lane, l.InFlight, l.Slots, l.Waiting)
		for _, b := range l.Budgets {
			fmt.Printf("%v %d (%s): %.0f spent\n", b.Dimension, b.Limit, b.Source, b.Spent)
		}
	}
	p.Release(sluice.Outcome{})
	// Output:
	// claude-haiku: 1 of 4 in flight, 0 waiting
	// rpm 60 (configured): 1 spent
}
