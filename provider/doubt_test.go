package provider_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

func TestAProvidersOwnCodesWinOverTheSharedRules(t *testing.T) {
	p := provider.Provider{Name: "odd", Codes: map[string]sluice.Kind{"1300": sluice.RateLimit, "ratelimiterror": sluice.Overloaded, "fine": sluice.OK}}
	cases := []struct {
		name, body string
		want       sluice.Kind
		rule       string
	}{
		{"a number", `{"error":{"code":1300,"message":"No."}}`, sluice.RateLimit, "code of odd"},
		{"in normal form", `{"error":{"type":"rate_limit_error","message":"Rate limited"}}`, sluice.Overloaded, "code of odd"},
		{"another code", `{"error":{"type":"insufficient_quota","message":"x"}}`, sluice.QuotaExhausted, "quota exhausted"},
		{"a code that means nothing", `{"error":{"code":"fine","type":"overloaded_error","message":"x"}}`, sluice.Overloaded, "overloaded"},
		{"a request that is too large all the same", `{"error":{"type":"rate_limit_error","message":"Request too large for m on tokens per min (TPM): Limit 10, Requested 20."}}`,
			sluice.ContextLength, "request alone exceeds the limit"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v := provider.Classify(p, 429, nil, []byte(c.body), noon)
			if v.Kind != c.want || v.Why.Rule != c.rule {
				t.Errorf("%v by %q, want %v by %q", v.Kind, v.Why.Rule, c.want, c.rule)
			}
		})
	}
	if v := provider.ClassifyEvent(p, []byte(`{"error":{"code":"1300","message":"x"}}`), noon); v.Kind != sluice.RateLimit {
		t.Errorf("in a stream: %v", v.Kind)
	}
}

func TestAWaitThatIsNotToBeBelievedIsProbed(t *testing.T) {
	odd := provider.Provider{Name: "odd", UntrustedWaits: []provider.UntrustedWait{{Wait: 100 * time.Second, Probe: 5 * time.Second}}}
	minute := `{"error":{"message":"Requests to the X Operation have exceeded token rate limit of your current pricing tier. Please retry after 86400 seconds."}}`
	cases := []struct {
		name        string
		p           provider.Provider
		status      int
		header      http.Header
		body        string
		wait, probe time.Duration
	}{
		{"a wait that a provider states wrongly", odd, 429, header("retry-after", "100"), `{}`, 100 * time.Second, 5 * time.Second},
		{"another wait of that provider", odd, 429, header("retry-after", "101"), `{}`, 101 * time.Second, 0},
		{"what others say", provider.Provider{}, 429, header("retry-after", "100"), `{}`, 100 * time.Second, 0},
		{"a day for a limit per minute", provider.Provider{}, 429, nil, minute, 24 * time.Hour, time.Minute},
		{"an hour for a limit per minute", provider.Provider{}, 429, nil, strings.Replace(minute, "86400", "3600", 1), time.Hour, 0},
		{"hours for a limit per day", provider.Provider{}, 429, nil, `{"error":{"message":"Rate limit reached on requests per day (RPD): Limit 3, Used 3, Requested 1. Please try again in 8h0m0s."}}`, 8 * time.Hour, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v := provider.Classify(c.p, c.status, c.header, []byte(c.body), noon)
			if v.Wait != c.wait || v.Probe != c.probe {
				t.Fatalf("wait %v, probe %v, want %v and %v (%v)", v.Wait, v.Probe, c.wait, c.probe, v.Kind)
			}
			pause := c.wait
			if c.probe > 0 {
				pause = c.probe
			}
			if o := v.Outcome(c.p, c.status, ""); v.Pause() != pause || o.Wait != pause {
				t.Errorf("pause %v, outcome's wait %v, want %v", v.Pause(), o.Wait, pause)
			}
		})
	}
	v := provider.Verdict{Kind: sluice.UsageWindow, Wait: time.Hour, Until: noon.Add(time.Hour), Probe: time.Minute}
	if o := v.Outcome(odd, 429, ""); o.Wait != time.Minute || !o.Until.IsZero() {
		t.Errorf("an instant that is as little to be believed: %+v", o)
	}
}

func TestTheOtherReadingIsNamedWhereTwoRemain(t *testing.T) {
	const quota = `{"error":{"message":"You exceeded your current quota, please check your plan and billing details."}}`
	cases := []struct {
		name, body string
		p          provider.Provider
		want       sluice.Kind
		also       string
	}{
		{"quota in words", quota, provider.Provider{}, sluice.QuotaExhausted, "rate_limit: "},
		{"quota in words of a provider that means it", quota, provider.Provider{Name: "openai"}, sluice.QuotaExhausted, ""},
		{"quota in words of Google", quota, provider.Provider{Name: "gemini", Dialect: provider.Gemini}, sluice.RateLimit, "usage_window: "},
		{"quota with its code", `{"error":{"message":"You exceeded your current quota.","code":"insufficient_quota"}}`, provider.Provider{}, sluice.QuotaExhausted, ""},
		{"a bare 429", "", provider.Provider{Name: "openai"}, sluice.RateLimit, "quota_exhausted: "},
		{"exhausted without details", `{"error":{"status":"RESOURCE_EXHAUSTED","message":"Resource has been exhausted (e.g. check quota)."}}`, provider.Provider{}, sluice.RateLimit, "quota_exhausted: "},
		{"a limit that asks for hours", `{"error":{"message":"Rate limited. Please try again in 9 hours."}}`, provider.Provider{}, sluice.UsageWindow, "rate_limit: "},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v := provider.Classify(c.p, 429, nil, []byte(c.body), noon)
			if v.Kind != c.want || c.also == "" && v.Why.Also != "" || !strings.HasPrefix(v.Why.Also, c.also) {
				t.Errorf("%v, also %q; want %v, also %q (%v)", v.Kind, v.Why.Also, c.want, c.also, v.Why)
			}
			if c.also != "" && !strings.Contains(v.Why.String(), "; or "+c.also) {
				t.Errorf("%q does not name it", v.Why)
			}
		})
	}
}

func TestADayOfGoogleEndsAtMidnightInLosAngeles(t *testing.T) {
	body := []byte(`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota.","details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProject"}]},{"retryDelay":"58s"}]}}`)
	for now, want := range map[string]string{
		"2026-03-01T12:00:00Z": "2026-03-02T08:00:00Z",
		"2026-03-08T12:00:00Z": "2026-03-09T07:00:00Z", // clocks went forward that morning
		"2026-07-01T06:59:00Z": "2026-07-01T07:00:00Z",
	} {
		at, _ := time.Parse(time.RFC3339, now)
		v := provider.Classify(provider.Provider{}, 429, nil, body, at)
		if got := v.Until.Format(time.RFC3339); v.Kind != sluice.UsageWindow || got != want || v.Wait != 58*time.Second {
			t.Errorf("at %s: %v until %s, want %s; wait %v", now, v.Kind, got, want, v.Wait)
		}
	}
}
