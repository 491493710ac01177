package pool_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/pool"
	"github.com/sluice-llm/sluice/provider"
)

// Fifty agents over five slots, ten of them at work at once. Each goes on where a run before left it.
func ExamplePool_Run() {
	scheduler, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 5}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer scheduler.Close()
	agents, err := pool.New(pool.Config{Scheduler: scheduler, MaxActive: 10, MaxQueuePriority: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			id := fmt.Sprintf("reviewer-%d", i)
			err := agents.Run(context.Background(), id, pool.MemberConfig{Kind: "reviewer"}, func(ctx context.Context, m *pool.Member) error {
				var step int
				if _, err := m.LoadCheckpoint(&step); err != nil && !errors.Is(err, pool.ErrNoCheckpoint) {
					return err
				}
				for ; step < 3; step++ {
					if _, err := m.Do(ctx, sluice.Call{Lane: "my-model"}, askModel); err != nil {
						return err
					}
					if err := m.SaveCheckpoint(step + 1); err != nil {
						return err
					}
				}
				return m.DeleteCheckpoint()
			})
			if err != nil {
				fmt.Println(id, err)
			}
		})
	}
	wg.Wait()
	if err := agents.Shutdown(context.Background()); err != nil {
		fmt.Println(err)
	}
	m := agents.Metrics()
	fmt.Println(m.Completed, "members,", m.Calls, "calls,", m.Active, "open")
	// Output: 50 members, 150 calls, 0 open
}

// askModel makes one attempt and does not retry.
func askModel(context.Context, *sluice.Permit) sluice.Outcome {
	return sluice.Outcome{Usage: sluice.Usage{Input: 20, Output: 5}, HasUsage: true}
}

// A call fails for reasons that call for different answers.
func ExampleMember_Do() {
	scheduler, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer scheduler.Close()
	agents, err := pool.New(pool.Config{Scheduler: scheduler, SlotTimeout: time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	member, err := agents.Register("coder", pool.MemberConfig{Limits: limits.ResourceLimits{LLMCalls: new(int64(2))}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer member.Close()

	ask := func(fn func(context.Context, *sluice.Permit) sluice.Outcome) {
		_, err := member.Do(context.Background(), sluice.Call{}, fn)
		var gaveUp *sluice.CallError
		switch {
		case err == nil:
			fmt.Println("answered")
		case errors.Is(err, sluice.ErrSlotTimeout):
			fmt.Println("no slot in time")
		case errors.Is(err, pool.ErrLimitExceeded):
			fmt.Println(err)
		case errors.As(err, &gaveUp):
			fmt.Println("given up:", gaveUp.Kind)
		}
	}
	ask(askModel)

	held, err := scheduler.Acquire(context.Background(), sluice.Call{}) // others have the slot
	if err != nil {
		fmt.Println(err)
		return
	}
	ask(askModel)
	held.Release(sluice.Outcome{})

	ask(func(context.Context, *sluice.Permit) sluice.Outcome { panic("a bug") })
	ask(askModel)
	// Output:
	// answered
	// no slot in time
	// given up: internal
	// member "coder" may make no more calls: llm_calls: 2 of 2 (100.0 %): exceeded
}

// An official SDK, or any client over HTTP, makes its calls as a member.
func ExampleMember() {
	scheduler, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 5}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer scheduler.Close()
	agents, err := pool.New(pool.Config{Scheduler: scheduler})
	if err != nil {
		fmt.Println(err)
		return
	}
	member, err := agents.Register("coder", pool.MemberConfig{Priority: limits.High})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer member.Close()

	transport, err := provider.NewTransport(provider.Config{Scheduler: member})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport} // for the SDK: option.WithHTTPClient(client)
	fmt.Println(client.Timeout, member.State().Phase)
	// Output: 0s initializing
}
