package sim_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/sim"
	"pgregory.net/rapid"
)

// quick has no latency, so that every call is judged and over at one instant.
func quick(c sim.Config) sim.Config {
	c.Latency, c.RefusalLatency = -1, -1
	return c
}

// Bodies seen on the wire, each with the one call that led to it.
// https://github.com/continuedev/continue/issues/11472
// https://github.com/BuilderIO/micro-agent/issues/86
// https://github.com/ago19800/HomeMind/issues/29 (there without rounding up)
func TestTokenRefusalsReadLikeRealOnes(t *testing.T) {
	for _, test := range []struct {
		limit, used, requested int
		wait                   string
	}{
		{30000, 18928, 11159, "174ms"},
		{30000, 21818, 11159, "5.954s"},
		{30000, 29937, 385, "644ms"},
		{12000, 4437, 9854, "11.455s"},
		{12000, 2542, 9855, "1.985s"},
	} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, quick(sim.Config{TPM: test.limit}))
			first := send(ctx, s, chatPath, chatBody("a", 1, test.used))
			equal(t, "status of the first", first.status, 200)
			r := send(ctx, s, chatPath, chatBody("b", 1, test.requested))
			equal(t, "status", r.status, 429)
			equal(t, "message", r.message(), fmt.Sprintf("Rate limit reached for gpt-4o in organization org-sim on "+
				"tokens per min (TPM): Limit %d, Used %d, Requested %d. Please try again in %s. "+
				"Visit https://platform.openai.com/account/rate-limits to learn more.", test.limit, test.used, test.requested, test.wait))
			contains(t, "body", r.body, `"type":"tokens","param":null,"code":"rate_limit_exceeded"`)
		})
	}
}

// https://github.com/datawhalechina/llm-cookbook/issues/8
// https://github.com/openai/openai-agents-js/issues/1022
func TestRequestRefusalsReadLikeRealOnes(t *testing.T) {
	for _, test := range []struct {
		config sim.Config
		n      int
		want   string
	}{
		{sim.Config{RPM: 3}, 3, "on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s."},
		{sim.Config{RPD: 200}, 200, "on requests per day (RPD): Limit 200, Used 200, Requested 1. Please try again in 7m12s."},
		{sim.Config{RPD: 1000}, 1000, "on requests per day (RPD): Limit 1000, Used 1000, Requested 1. Please try again in 1m26.4s."},
		// With a smaller bucket, used is still the limit less what is left.
		{sim.Config{RPM: 60, Burst: 5 * time.Second}, 5, "on requests per min (RPM): Limit 60, Used 60, Requested 1. Please try again in 1s."},
	} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, quick(test.config))
			for range test.n {
				equal(t, "status", send(ctx, s, chatPath, chatBody("a", 1, 1)).status, 200)
			}
			r := send(ctx, s, chatPath, chatBody("b", 1, 1))
			contains(t, "message", r.message(), test.want)
			contains(t, "body", r.body, `"type":"requests"`)
		})
	}
}

func TestRequestAboveTheLimitCanNeverPass(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, quick(sim.Config{TPM: 30000}))
		r := send(ctx, s, chatPath, chatBody("a", 1, 30601))
		equal(t, "status", r.status, 429)
		contains(t, "message", r.message(), "Request too large for gpt-4o in organization org-sim on tokens per min (TPM): "+
			"Limit 30000, Requested 30601. The input or output tokens must be reduced in order to run successfully.")
		equal(t, "Retry-After", r.header.Get("Retry-After"), "")
	})
}

func TestRequestAboveTheBucketPassesWhenItIsFull(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, quick(sim.Config{TPM: 6000, Burst: time.Second})) // 100 per second
		equal(t, "status", send(ctx, s, chatPath, chatBody("a", 1, 300)).status, 200)
		equal(t, "status in debt", send(ctx, s, chatPath, chatBody("b", 1, 1)).status, 429)
		time.Sleep(2010 * time.Millisecond)
		equal(t, "status after the debt", send(ctx, s, chatPath, chatBody("b", 1, 1)).status, 200)
	})
}

func TestDeclaredChargeIsTheGreaterOfInputAndMaxTokens(t *testing.T) {
	for _, test := range []struct {
		input, maxTokens, choices int
		want                      string
	}{
		{50, 20, 1, "950"}, {50, 90, 1, "910"}, {50, 90, 3, "730"}, {50, 0, 3, "950"},
	} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, quick(sim.Config{TPM: 1000, OutputTokens: 40}))
			body := strings.Replace(chatBody("a", test.input, test.maxTokens), "{", fmt.Sprintf(`{"n":%d,`, test.choices), 1)
			r := send(ctx, s, chatPath, body)
			equal(t, fmt.Sprintf("remaining after %+v", test), r.header.Get("x-ratelimit-remaining-tokens"), test.want)
		})
	}
}

func TestOpenAIHeadersTellTheBucket(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, quick(sim.Config{RPM: 500, TPM: 30000}))
		send(ctx, s, chatPath, chatBody("a", 1, 429))
		time.Sleep(60 * time.Millisecond) // half a request, 30 tokens
		r := send(ctx, s, chatPath, chatBody("b", 1, 100))
		for name, want := range map[string]string{
			"x-ratelimit-limit-requests":     "500",
			"x-ratelimit-remaining-requests": "498", // 498.5
			"x-ratelimit-reset-requests":     "180ms",
			"x-ratelimit-limit-tokens":       "30000",
			"x-ratelimit-remaining-tokens":   "29501",
			"x-ratelimit-reset-tokens":       "998ms",
		} {
			equal(t, name, r.header.Get(name), want)
		}
		send(ctx, s, chatPath, chatBody("c", 1, 29000))
		r = send(ctx, s, chatPath, chatBody("d", 1, 1000))
		equal(t, "status", r.status, 429)
		equal(t, "remaining on a 429", r.header.Get("x-ratelimit-remaining-tokens"), "501")
		equal(t, "reset on a 429", r.header.Get("x-ratelimit-reset-tokens"), "58.998s")
	})
}

func TestAnthropicHeadersTellEveryLimit(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) { // begins at 2000-01-01T00:00:00Z
		s := serve(t, quick(sim.Config{RPM: 50, ITPM: 30000, OTPM: 8000, Charge: limits.ChargeActual, OutputTokens: 600}))
		r := send(ctx, s, "/v1/messages", chatBody("a", 1400, 1000), "Anthropic-Version", "2023-06-01")
		equal(t, "status", r.status, 200)
		r = send(ctx, s, "/v1/messages", chatBody("b", 200, 1000), "Anthropic-Version", "2023-06-01")
		for name, want := range map[string]string{
			"anthropic-ratelimit-requests-limit":          "50",
			"anthropic-ratelimit-requests-remaining":      "48",
			"anthropic-ratelimit-requests-reset":          "2000-01-01T00:00:03Z",
			"anthropic-ratelimit-input-tokens-limit":      "30000",
			"anthropic-ratelimit-input-tokens-remaining":  "28000",
			"anthropic-ratelimit-input-tokens-reset":      "2000-01-01T00:00:04Z",
			"anthropic-ratelimit-output-tokens-limit":     "8000",
			"anthropic-ratelimit-output-tokens-remaining": "7000",
			"anthropic-ratelimit-output-tokens-reset":     "2000-01-01T00:00:05Z",
			"anthropic-ratelimit-tokens-limit":            "38000",
			"anthropic-ratelimit-tokens-remaining":        "36000", // 28,400 + 7,400
			"anthropic-ratelimit-tokens-reset":            "2000-01-01T00:00:05Z",
		} {
			equal(t, name, r.header.Get(name), want)
		}
	})
}

func TestHeadersCanBeLateDailyOrMissing(t *testing.T) {
	const name = "x-ratelimit-remaining-requests"
	for what, test := range map[string]struct {
		config sim.Config
		want   string
	}{
		"usual":   {sim.Config{RPM: 600}, "599"},
		"late":    {sim.Config{RPM: 600, LateHeaders: true, Latency: 99 * time.Millisecond}, "599"}, // 599.99
		"later":   {sim.Config{RPM: 600, LateHeaders: true, Latency: 100 * time.Millisecond}, "600"},
		"daily":   {sim.Config{RPM: 600, RPD: 1000, DailyHeaders: true}, "999"},
		"missing": {sim.Config{RPM: 600, NoHeaders: true}, ""},
	} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			r := send(ctx, serve(t, test.config), chatPath, chatBody("a", 1, 1))
			equal(t, name+" "+what, r.header.Get(name), test.want)
		})
	}
}

func TestRetryAfterHasManyForms(t *testing.T) {
	for _, test := range []struct {
		form                  sim.RetryAfterForm
		wantAfter, wantMillis string
	}{
		{sim.RetryAfterSeconds, "3", ""},
		{sim.RetryAfterMillis, "3", "2400"},
		{sim.RetryAfterDate, "Sat, 01 Jan 2000 00:00:03 GMT", ""},
		{sim.RetryAfterNone, "", ""},
	} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, quick(sim.Config{RPM: 25, Burst: time.Second, RetryAfter: test.form})) // one in 2.4 s
			r := send(ctx, s, chatPath, chatBody("a", 1, 1))
			equal(t, "Retry-After of an answer", r.header.Get("Retry-After"), "")
			r = send(ctx, s, chatPath, chatBody("b", 1, 1))
			equal(t, "Retry-After", r.header.Get("Retry-After"), test.wantAfter)
			equal(t, "retry-after-ms", r.header.Get("retry-after-ms"), test.wantMillis)
		})
	}
}

func TestVagueBodiesSayNothing(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, quick(sim.Config{RPM: 1, VagueBodies: true}))
		send(ctx, s, chatPath, chatBody("a", 1, 1))
		equal(t, "body", send(ctx, s, chatPath, chatBody("b", 1, 1)).body,
			`{"error":{"message":"Rate limit reached","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`)
		equal(t, "message", send(ctx, s, "/v1/messages", chatBody("b", 1, 1), "Anthropic-Version", "2023-06-01").message(),
			"This request would exceed your account's rate limit. Please try again later.")
	})
}

func TestAnthropicRefusalNamesTheLimit(t *testing.T) {
	for limit, c := range map[string]sim.Config{
		"50 requests per minute":         {RPM: 50, Burst: time.Millisecond},
		"30,000 input tokens per minute": {ITPM: 30000},
		"8,000 output tokens per minute": {OTPM: 8000, Charge: limits.ChargeActual, OutputTokens: 9000},
		"1,000,000 tokens per minute":    {TPM: 1000000, Charge: limits.ChargeActual, OutputTokens: 990000},
	} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, quick(c))
			for _, want := range []int{200, 429} {
				r := send(ctx, s, "/v1/messages", chatBody("a", 15001, 1e6), "Anthropic-Version", "2023-06-01")
				equal(t, "status", r.status, want)
				if want == 429 {
					contains(t, "message", r.message(), "This request would exceed the rate limit for your organization (org-sim) of "+
						limit+". For details, refer to: https://docs.claude.com/en/api/rate-limits. You can see the response headers")
					contains(t, "body", r.body, `{"type":"error","error":{"type":"rate_limit_error",`)
					contains(t, "body", r.body, `"request_id":"req_`)
				}
			}
		})
	}
}

func TestActualChargeLeavesTheAnswerAsADebt(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{TPM: 600, Charge: limits.ChargeActual, OutputTokens: 650, Latency: time.Second})
		equal(t, "status", send(ctx, s, chatPath, chatBody("a", 10, 1000)).status, 200)
		// 600 - 10, a second full again, - 650: 50 tokens of debt.
		r := send(ctx, s, chatPath, chatBody("b", 10, 1000))
		equal(t, "status", r.status, 429)
		contains(t, "message", r.message(), "Limit 600, Used 650, Requested 10. Please try again in 6s.")
	})
}

func TestOutputIsAdmittedWhileATokenIsLeft(t *testing.T) {
	for output, want := range map[int]int{599: 200, 600: 429} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, quick(sim.Config{OTPM: 600, Charge: limits.ChargeActual, OutputTokens: output}))
			equal(t, "status", send(ctx, s, chatPath, chatBody("a", 1, 1000)).status, 200)
			equal(t, fmt.Sprintf("status after %d of 600", output), send(ctx, s, chatPath, chatBody("b", 1, 1000)).status, want)
		})
	}
}

func TestRefusedCallIsChargedNothing(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, quick(sim.Config{RPM: 10, TPM: 1000}))
		send(ctx, s, chatPath, chatBody("a", 1, 900))
		for range 5 {
			equal(t, "status", send(ctx, s, chatPath, chatBody("b", 1, 500)).status, 429)
		}
		r := send(ctx, s, chatPath, chatBody("c", 1, 50))
		equal(t, "status", r.status, 200)
		equal(t, "remaining requests", r.header.Get("x-ratelimit-remaining-requests"), "8")
	})
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, quick(sim.Config{RPM: 10, TPM: 1000, ChargeRefusals: true}))
		send(ctx, s, chatPath, chatBody("a", 1, 900))
		for range 5 {
			send(ctx, s, chatPath, chatBody("b", 1, 500))
		}
		r := send(ctx, s, chatPath, chatBody("c", 1, 50))
		equal(t, "remaining requests if refusals are charged", r.header.Get("x-ratelimit-remaining-requests"), "3")
		for range 9 {
			r = send(ctx, s, chatPath, chatBody("b", 1, 500))
		}
		time.Sleep(6 * time.Second)
		equal(t, "status after one refill", send(ctx, s, chatPath, chatBody("d", 1, 1)).status, 200)
	})
}

func TestLimitsChangeMidRun(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, quick(sim.Config{RPM: 60, Changes: []sim.Change{{At: 10 * time.Second, Factor: 0.5}, {At: 20 * time.Second, Factor: 2}}}))
		remaining := func() string {
			r := send(ctx, s, chatPath, chatBody("a", 1, 1))
			return r.header.Get("x-ratelimit-remaining-requests") + "/" + r.header.Get("x-ratelimit-limit-requests")
		}
		equal(t, "at first", remaining(), "59/60")
		time.Sleep(10 * time.Second)
		equal(t, "halved", remaining(), "29/30")
		time.Sleep(10 * time.Second)
		equal(t, "doubled", remaining(), "29/120") // full at 30, less one
		time.Sleep(5 * time.Second)
		equal(t, "5 s later", remaining(), "38/120")
	})
}

func TestFixedWindowFillsAtOnce(t *testing.T) {
	for name, c := range map[string]sim.Config{
		"of a rate": {RPM: 60, Burst: 10 * time.Second, FixedWindow: true},
		"stated":    {Requests: limits.Window{N: 10, Period: 10 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) { fillsAtOnce(t, c) })
	}
}

// fillsAtOnce tests a window of ten requests in 10 s.
func fillsAtOnce(t *testing.T, c sim.Config) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, quick(c))
		time.Sleep(3 * time.Second)
		for i := range 11 {
			r := send(ctx, s, chatPath, chatBody("a", 1, 1))
			equal(t, "status", r.status, map[bool]int{true: 200, false: 429}[i < 10])
			if i == 0 {
				time.Sleep(4 * time.Second)
			}
		}
		r := send(ctx, s, chatPath, chatBody("a", 1, 1))
		contains(t, "message", r.message(), "Please try again in 6s.")
		equal(t, "reset", r.header.Get("x-ratelimit-reset-requests"), "6s")
		time.Sleep(6*time.Second - 1)
		equal(t, "status just before", send(ctx, s, chatPath, chatBody("a", 1, 1)).status, 429)
		time.Sleep(time.Nanosecond)
		r = send(ctx, s, chatPath, chatBody("a", 1, 1))
		equal(t, "remaining in the new window", r.header.Get("x-ratelimit-remaining-requests"), "9")
	})
}

// arrival is one call of a random schedule.
type arrival struct {
	after  time.Duration
	tokens int
}

// grants runs a schedule and returns what passed, and when.
func grants(t *testing.T, c sim.Config, schedule []arrival) (at []time.Duration, tokens []int, errs []string) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, quick(c))
		begun := time.Now()
		for i, a := range schedule {
			time.Sleep(a.after)
			body := chatBody("", 1, a.tokens)
			r := send(t.Context(), s, chatPath, body)
			if r.status == 429 {
				wait := statedWait(r.message())
				time.Sleep(wait)
				if r = send(t.Context(), s, chatPath, body); r.status != 200 {
					errs = append(errs, fmt.Sprintf("call %d refused after the stated wait of %v: %s", i, wait, r.message()))
					continue
				}
			}
			at = append(at, time.Since(begun))
			tokens = append(tokens, a.tokens)
		}
	})
	return at, tokens, errs
}

var waitPattern = regexp.MustCompile(`Limit (\d+), Used (-?\d+), Requested (\d+). Please try again in ([^ ]+s)\.`)

func statedWait(message string) time.Duration {
	d, err := time.ParseDuration(waitPattern.FindStringSubmatch(message)[4])
	if err != nil {
		panic(err)
	}
	return d
}

func TestLimiterGrantsNoMoreThanRateAndBurst(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := sim.Config{
			TPM:   rapid.IntRange(60, 1e6).Draw(rt, "tpm"),
			Burst: time.Duration(rapid.IntRange(1, 60000).Draw(rt, "burst")) * time.Millisecond,
		}
		rate := float64(c.TPM) / 60
		capacity := max(1, rate*c.Burst.Seconds())
		schedule := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) arrival {
			return arrival{
				time.Duration(rapid.IntRange(0, 3000).Draw(rt, "after")) * time.Millisecond,
				rapid.IntRange(1, max(1, min(int(capacity), c.TPM))).Draw(rt, "tokens"),
			}
		}), 1, 60).Draw(rt, "schedule")
		at, tokens, errs := grants(t, c, schedule)
		for _, err := range errs {
			rt.Fatal(err)
		}
		for i := range at {
			sum := 0
			for j := i; j < len(at); j++ {
				sum += tokens[j]
				if most := rate*(at[j]-at[i]).Seconds() + capacity; float64(sum) > most+1e-3 {
					rt.Fatalf("%d tokens in %v, at most %.3f may pass", sum, at[j]-at[i], most)
				}
			}
		}
	})
}

// The wait that a refusal states is the formula's, and less is not enough.
func TestStatedWaitIsTheLeast(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(600, 60000).Draw(rt, "limit")
		used := rapid.IntRange(1, limit).Draw(rt, "used")
		requested := rapid.IntRange(limit-used+1, limit).Draw(rt, "requested")
		early := rapid.Bool().Draw(rt, "early")
		var message string
		var stated time.Duration
		var status int
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, quick(sim.Config{TPM: limit}))
			send(t.Context(), s, chatPath, chatBody("a", 1, used))
			message = send(t.Context(), s, chatPath, chatBody("b", 1, requested)).message()
			stated = statedWait(message)
			if early {
				time.Sleep(stated - 2*time.Millisecond)
			} else {
				time.Sleep(stated)
			}
			status = send(t.Context(), s, chatPath, chatBody("b", 1, requested)).status
		})
		m := waitPattern.FindStringSubmatch(message)
		for i, want := range []int{limit, used, requested} {
			if m[i+1] != strconv.Itoa(want) {
				rt.Fatalf("%q, want %d in place %d", message, want, i)
			}
		}
		formula := float64(used+requested-limit) / float64(limit) * 60
		if d := stated.Seconds() - formula; d < -1e-9 || d > 0.001 {
			rt.Fatalf("%v stated, the formula says %.4f s", stated, formula)
		}
		if want := map[bool]int{true: 429, false: 200}[early]; status != want {
			rt.Fatalf("status %d after the wait of %v (early: %v)", status, stated, early)
		}
	})
}
