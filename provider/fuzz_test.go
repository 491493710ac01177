package provider_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/provider"
)

const longestWait = 31 * 24 * time.Hour

// sane checks what holds of every verdict.
func sane(t *testing.T, v provider.Verdict) {
	t.Helper()
	limit := v.Kind.Throttle()
	switch {
	case v.Wait < 0 || v.Wait > longestWait || v.Probe < 0 || v.Probe > v.Wait || v.Limit < 0 || v.Used < 0 || v.Requested < 0:
		t.Errorf("out of bounds: %+v", v)
	case !limit && (v.Wait > 0 || v.Probe > 0):
		t.Errorf("a wait of %v for %v", v.Wait, v.Kind)
	case !limit && v.Kind != sluice.QuotaExhausted && !v.Until.IsZero():
		t.Errorf("until %v for %v", v.Until, v.Kind)
	case v.Kind == sluice.OK && v.Message != "":
		t.Errorf("a message of no error: %+v", v)
	case v.Why.Rule == "":
		t.Errorf("no reason: %+v", v)
	}
	if text := v.Message + v.Why.String(); strings.Contains(text, planted) {
		t.Errorf("a key in %q", text)
	}
}

// planted is a key that is put into what is fuzzed.
const planted = "sk-proj-abcdefgh0123456789"

func FuzzClassify(f *testing.F) {
	for _, c := range classifyCases() {
		f.Add(c.status, "retry-after: "+strings.Join(c.header, " "), c.body)
	}
	f.Add(429, "1.5", `{"error":{"metadata":{"headers":{"X-RateLimit-Remaining":"0","X-RateLimit-Reset":"1772366430000"}}}}`)
	f.Fuzz(func(t *testing.T, status int, value, body string) {
		body = strings.ReplaceAll(body, "KEY", " "+planted+" ")
		p := provider.Provider{Name: "x", Codes: map[string]sluice.Kind{"odd": sluice.RateLimit}, UntrustedWaits: []provider.UntrustedWait{{Wait: time.Minute, Probe: time.Second}}}
		h := header("retry-after", value, "x-ratelimit-remaining-requests", value, "x-amzn-errortype", value)
		v := provider.Classify(p, status, h, []byte(body), noon)
		sane(t, v)
		if status >= 300 && v.Kind == sluice.OK {
			t.Errorf("status %d is ok", status)
		}
		if w := provider.Classify(p, status, h, []byte(body), noon); w != v {
			t.Errorf("%+v, then %+v", v, w)
		}
	})
}

func FuzzClassifyText(f *testing.F) {
	for _, c := range textCases() {
		f.Add(0, c.text)
	}
	for _, c := range corpus(f, "testdata/published.jsonl") {
		f.Add(c.Status, c.Text)
	}
	f.Fuzz(func(t *testing.T, status int, text string) {
		text = strings.ReplaceAll(text, "KEY", " "+planted+" ")
		v := provider.ClassifyText(provider.Provider{}, status, text, noon)
		sane(t, v)
		if w := provider.ClassifyText(provider.Provider{}, status, text, noon); w != v {
			t.Errorf("%+v, then %+v", v, w)
		}
	})
}

// Kilobytes of what could make a reader go over them again and again.
func TestHostileTextsAreReadInLinearTime(t *testing.T) {
	size := suite.Size(8<<10, 64<<10)
	fill := func(s string) string { return strings.Repeat(s, size/len(s)+1)[:size] }
	for _, s := range []string{"{", "[", `{"error":`, `{"error":{"message":"`, "a", "a ", "\n", "{\n", "Error: ", "Error: \n", "429 ", "x: ", "x. ", "\"", "'", "\\", "<", "<title>",
		"resets ", "resets at at at ", "try again in ", "9", "9 ", "1:", "wait 1", "limit limit ", "*", "HTTP/1.1 429\n", "a:b\n", "data: {\n", "│", "\x1b[", "é", "重置", "resets 重置 1", "RateLimitError: ",
		"{'error': '{\"error\": '", "you've hit your ", "Jul 1", "openai.", "Error code: 4", "  \n  ", "({[<", "event: error\ndata: ", "retry in 1 hour and ", "has exceeded rate limit ", "map[", "map[a:b ", "{a=>", "Some(\"a", "retrying in ",
		"error: token\n", "额度", "retry_delay {", "{\"error_msg\":\"{", "resets 5pm (", "resets 5pm a ", "resets Mon, ", "resets UTC ", "resets at the ", "resets 5pm A/", "周", "resets 周", "1-", "wait a ", "wait PT1", "wait 1,000,", "raise 'AError: B ", "9% of ", ":5432 ", "the root cause: ", "possibly ", "x: HTTP/1 429\na: b\n", "<class '"} {
		text := fill(s)
		inLinearTime(t, s, 3*time.Second, func() {
			sane(t, provider.ClassifyText(provider.Provider{}, 0, text, noon))
			sane(t, provider.Classify(provider.Provider{}, 429, nil, []byte(text), noon))
		})
	}
}

// inLinearTime fails if the fastest of five searches of a hostile text takes longer than the limit. Limits are a hundred times of
// what a search takes, for a busy machine and the race detector. A search whose time grows as the square of the text takes longer.
func inLinearTime(t *testing.T, name string, limit time.Duration, search func()) {
	t.Helper()
	for range 5 {
		start := time.Now()
		if search(); time.Since(start) <= limit || !suite.Full {
			return
		}
	}
	t.Errorf("%q takes too long", name)
}
