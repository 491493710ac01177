package batch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
)

// TestWhateverMeetsNothingIsHeld runs batches under a budget in which everything that makes calls wait or spares them may
// meet: several upstreams, warm-up, a cache, equal lines, retries, pauses, checks that panic, and stops of all kinds. Each run
// ends, uses no more than its budget, and leaves nothing of it held.
func TestWhateverMeetsNothingIsHeld(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		var err error
		synctest.Test(t, func(t *testing.T) { err = meeting(t, rand.New(rand.NewPCG(seed, 1))) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

func meeting(t *testing.T, luck *rand.Rand) error {
	n, subjects := 1+luck.IntN(80), 1+luck.IntN(6)
	var text strings.Builder
	for i := range n {
		question := luck.IntN(n) // equal lines, too
		fmt.Fprintf(&text, `{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":{"model":"m","max_tokens":%d,"messages":[`+
			`{"role":"system","content":%q},{"role":"user","content":"%d?"}]}}`+"\n",
			i, 1+question%400, fmt.Sprint("s", question%subjects)+strings.Repeat(".", 4500), question)
	}
	f := newFiles(t, text.String())
	p := &payer{luck: rand.New(rand.NewPCG(luck.Uint64(), 1)), faults: luck.Float64() * 0.7, most: time.Duration(1 + luck.IntN(3000)*int(time.Millisecond))}
	farm := newFarm(t)
	for i := range 1 + luck.IntN(3) {
		farm.add(fmt.Sprint("u", i), p, func(up *provider.Upstream) {
			up.Scheduler = farm.scheduler(sluice.Config{Limits: sluice.Limits{Concurrent: 1 + luck.IntN(10)}, Attempts: 4})
			up.Price = func(string) (in, out float64, ok bool) { return priceIn, priceOut, true }
		})
	}
	farm.cfg.Attempts = 4
	cfg := f.config(t, p)
	one := farm.cfg.Upstreams[0].Scheduler
	cfg.Scheduler = func(provider.Provider) (*sluice.Scheduler, error) { return one, nil }
	cfg.Price = prices
	if luck.IntN(2) == 0 {
		u, err := provider.NewUpstreams(farm.cfg)
		if err != nil {
			return err
		}
		cfg.Scheduler, cfg.Upstreams, cfg.Transport = nil, u, farm
	}
	odd := fmt.Sprint(luck.IntN(30))
	cfg.Check = func(id string, _ provider.Endpoint, body []byte) error {
		if id == odd {
			panic("odd")
		}
		if strings.Contains(string(body), "WRONG") {
			return errors.New("wrong")
		}
		return nil
	}
	cfg.WarmUp, cfg.Dedupe, cfg.Feedback = luck.IntN(2) == 0, luck.IntN(2) == 0, luck.IntN(2) == 0
	cfg.Workers = luck.IntN(40)
	if luck.IntN(2) == 0 {
		cfg.Cache = filepath.Join(t.TempDir(), "cache")
	}
	if luck.IntN(3) == 0 {
		in, err := os.Open(f.in)
		if err != nil {
			return err
		}
		defer in.Close()
		cfg.Input, cfg.Stdin = "-", in
	}
	if luck.IntN(2) == 0 {
		cfg.Order = batch.OrderInput
	}
	cfg.Budget = batch.Budget{Attempts: 4, Tokens: 1 + luck.IntN(n*2500)}
	if luck.IntN(2) == 0 {
		cfg.Budget.Cost = luck.Float64() * float64(n) * 0.01
	}
	b, err := batch.Open(cfg)
	if err != nil {
		return err
	}
	defer b.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stops := []func(){func() {}, func() {}, b.Drain, func() { b.Stop(errors.New("enough")) }, cancel}
	stop, at := stops[luck.IntN(len(stops))], time.Duration(luck.IntN(10_000))*time.Millisecond
	defer time.AfterFunc(at, stop).Stop()
	held := time.Duration(luck.IntN(8000)) * time.Millisecond
	defer time.AfterFunc(held, func() { one.Pause() }).Stop()
	defer time.AfterFunc(held+time.Minute, func() { one.Resume() }).Stop()

	rep, err := b.Run(ctx)
	if held, open, waiting, known := b.Rationed(); held != 0 || open != 0 || waiting != 0 || known != 0 {
		return fmt.Errorf("%v is held, %d calls are let in, %d wait, %d are known after %v", held, open, waiting, known, err)
	}
	for _, up := range farm.cfg.Upstreams {
		for _, lane := range up.Scheduler.Snapshot().Lanes {
			if lane.InFlight != 0 || lane.Waiting != 0 {
				return fmt.Errorf("%s: %d in flight and %d waiting after %v", up.Name, lane.InFlight, lane.Waiting, err)
			}
		}
	}
	if used := p.in + p.out; !cfg.Feedback && used > cfg.Budget.Tokens { // a correction is longer than what was asked
		return fmt.Errorf("%d tokens were used of %d", used, cfg.Budget.Tokens)
	}
	if most := cfg.Budget.Cost; !cfg.Feedback && most > 0 && p.cost() > most*(1+1e-9) {
		return fmt.Errorf("$%v were spent of $%v", p.cost(), most)
	}
	if err == nil && rep.Done+rep.Failed != n {
		return fmt.Errorf("%d of %d items, and no error", rep.Done+rep.Failed, n)
	}
	return nil
}
