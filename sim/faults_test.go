package sim_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/sim"
)

// fate is how an attempt went, in a word.
func (r reply) fate() string {
	switch {
	case r.err != nil && r.status != 0:
		return "cut"
	case errors.Is(r.err, context.DeadlineExceeded):
		return "hang"
	case r.err != nil:
		return "reset"
	}
	return fmt.Sprint(r.status)
}

var everyFault = sim.Config{
	Faults: sim.Faults{ServerError: 0.15, Overloaded: 0.15, Reset: 0.15, Hang: 0.15, Cut: 0.15, BadRequest: 0.1},
	Jitter: 0.5,
}

// fates sends the requests in the given order, attempts times each, and tells
// how and how fast every attempt went.
func fates(t *testing.T, c sim.Config, order []int, attempts int) map[string][]string {
	fates := map[string][]string{}
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, c)
		for range attempts {
			for _, i := range order {
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				name := fmt.Sprint("item ", i)
				r := send(ctx, s, chatPath, chatBody(name, 4, 10))
				fates[name] = append(fates[name], fmt.Sprint(r.fate(), " after ", r.took))
				cancel()
			}
		}
	})
	return fates
}

func TestLuckIsAFunctionOfRequestAndAttempt(t *testing.T) {
	forward, backward := make([]int, 60), make([]int, 60)
	for i := range 60 {
		forward[i], backward[59-i] = i, i
	}
	c := everyFault
	c.Seed = 7
	one, other := fates(t, c, forward, 3), fates(t, c, backward, 3)
	seen, same := map[string]int{}, 0
	for name := range one {
		if got, want := fmt.Sprint(other[name]), fmt.Sprint(one[name]); got != want {
			t.Errorf("%s met %s in one order and %s in another", name, want, got)
		}
		for _, fate := range one[name] {
			seen[strings.Fields(fate)[0]]++
		}
		if one[name][0] == one[name][1] {
			same++
		}
		bad := strings.HasPrefix(one[name][0], "400")
		for _, fate := range one[name] {
			equal(t, name+" is bad", strings.HasPrefix(fate, "400"), bad)
		}
	}
	for _, fate := range []string{"200", "400", "500", "503", "cut", "hang", "reset"} {
		if seen[fate] < 6 {
			t.Errorf("%d attempts of 180 met %s: %v", seen[fate], fate, seen)
		}
	}
	if same > 20 {
		t.Errorf("%d of 60 requests met the same luck twice", same)
	}
	c.Seed = 8
	if fmt.Sprint(fates(t, c, forward, 3)) == fmt.Sprint(one) {
		t.Error("another seed brings the same luck")
	}
}

func TestThrottledAttemptsDrawNoLuck(t *testing.T) {
	run := func(throttles int) (how []string) {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, sim.Config{Faults: sim.Faults{ServerError: 0.5}, RPM: 60, Burst: time.Millisecond})
			for range 8 {
				for range throttles {
					synctest.Wait()
					if r := send(ctx, s, chatPath, chatBody("a", 4, 10)); r.status != 429 {
						how = append(how, r.fate())
					}
				}
				time.Sleep(2 * time.Second)
			}
		})
		return how
	}
	once, thrice := run(1), run(3)
	equal(t, "fates", fmt.Sprint(thrice), fmt.Sprint(once))
	equal(t, "both fates are met", strings.Contains(fmt.Sprint(once), "500") && strings.Contains(fmt.Sprint(once), "200"), true)
}

func TestFaultsInProcess(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{Faults: sim.Faults{Reset: 1}})
		r := send(ctx, s, chatPath, chatBody("a", 1, 1))
		if !errors.Is(r.err, syscall.ECONNRESET) {
			t.Errorf("a reset is %v", r.err)
		}
		equal(t, "took", r.took, 200*time.Millisecond)
		equal(t, "faulted", s.Stats().Faulted, 1)
		equal(t, "in flight", s.Stats().InFlight, 0)
	})
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{Faults: sim.Faults{Cut: 1}})
		for _, streams := range []string{"false", "true"} {
			body := strings.Replace(chatBody("a", 1, 50), "{", `{"stream":`+streams+`,`, 1)
			r := send(ctx, s, chatPath, body)
			if r.status != 200 || len(r.body) == 0 || !errors.Is(r.err, io.ErrUnexpectedEOF) {
				t.Errorf("a cut is %d, %v after %q", r.status, r.err, r.body)
			}
		}
		equal(t, "paid", len(s.Stats().Paid), 0)
	})
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{Faults: sim.Faults{Hang: 1}, Concurrency: 1})
		ctx, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		go send(ctx, s, chatPath, chatBody("a", 1, 1))
		time.Sleep(time.Hour - 1)
		equal(t, "in flight", s.Stats().InFlight, 1)
		equal(t, "status", send(context.WithoutCancel(ctx), s, chatPath, chatBody("b", 1, 1)).status, 429)
		synctest.Wait()
		equal(t, "in flight", s.Stats().InFlight, 0)
	})
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{Faults: sim.Faults{Overloaded: 1}})
		r := send(ctx, s, chatPath, chatBody("a", 1, 1))
		equal(t, "status", r.status, 503)
		equal(t, "took", r.took, 5*time.Millisecond)
		contains(t, "body", r.body, `"code":"server_is_overloaded"`)
		r = send(ctx, s, "/v1/messages", chatBody("a", 1, 1), "Anthropic-Version", "2023-06-01")
		equal(t, "status", r.status, 529)
		contains(t, "body", r.body, `"error":{"type":"overloaded_error","message":"Overloaded"}`)
	})
}

func TestFaultsOverSockets(t *testing.T) {
	for name, test := range map[string]struct {
		faults sim.Faults
		stream bool
		check  func(r reply) bool
	}{
		"reset":      {sim.Faults{Reset: 1}, false, func(r reply) bool { return errors.Is(r.err, syscall.ECONNRESET) }},
		"cut":        {sim.Faults{Cut: 1}, false, func(r reply) bool { return r.status == 200 && errors.Is(r.err, io.ErrUnexpectedEOF) && r.body != "" }},
		"cut stream": {sim.Faults{Cut: 1}, true, func(r reply) bool { return r.status == 200 && errors.Is(r.err, io.ErrUnexpectedEOF) && r.body != "" }},
		"hang":       {sim.Faults{Hang: 1}, false, func(r reply) bool { return r.fate() == "hang" }},
		"none":       {sim.Faults{}, false, func(r reply) bool { return r.status == 200 && r.err == nil }},
		"stream":     {sim.Faults{}, true, func(r reply) bool { return strings.HasSuffix(r.body, "data: [DONE]\n\n") && r.err == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			web := httptest.NewServer(serve(t, sim.Config{Faults: test.faults, Latency: time.Millisecond}))
			defer web.Close()
			body := chatBody("a", 1, 500)
			if test.stream {
				body = strings.Replace(body, "{", `{"stream":true,`, 1)
			}
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 300 * time.Millisecond}
			r := reply{}
			response, err := client.Post(web.URL+chatPath, "application/json", strings.NewReader(body))
			r.err = err
			if err == nil {
				b, err := io.ReadAll(response.Body)
				response.Body.Close()
				r.status, r.body, r.err = response.StatusCode, string(b), err
			}
			if !test.check(r) {
				t.Errorf("got %d, %v, %d bytes", r.status, r.err, len(r.body))
			}
		})
	}
}
