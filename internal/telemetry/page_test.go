package telemetry_test

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/limits"
)

// stormPage is the page of a run through a storm of five seconds.
func stormPage(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		o := watch(t, storm(), sluice.Limits{}, 400)
		r := fromFiles(t, o.output, o.events)
		r.Output = "answers.jsonl"
		r.Judge(telemetry.Advice{Left: 5, Again: "sluice run questions.jsonl -o answers.jsonl"})
		check(t, r.WriteHTML(&b))
		var again bytes.Buffer
		check(t, r.WriteHTML(&again))
		if !bytes.Equal(b.Bytes(), again.Bytes()) {
			t.Error("the same report makes different pages")
		}
	})
	return b.Bytes()
}

func TestAPageNeedsNothingElse(t *testing.T) {
	page := string(stormPage(t))
	for _, bad := range []string{"<script", "javascript:", "<link", "<img", "@import", "url(", "<iframe", "<?xml"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	for _, address := range regexp.MustCompile(`(?:=\s*["']?|url\(["']?|@import ["']?)https?://[^"<\s]+`).FindAllString(page, -1) { // in words of a provider it is text
		if !strings.HasPrefix(address, `="http://www.w3.org/`) { // a namespace, which nobody fetches
			t.Errorf("the page names %s", address)
		}
	}
	if n := strings.Count(page, "<svg"); n != 8 { // three for each of two lanes, waits and latencies
		t.Errorf("%d charts, want 8", n)
	}
	if strings.Contains(page, "NaN") || strings.Contains(page, "Inf ") {
		t.Error("a chart has a place that is no number")
	}
}

func TestAPageSaysWhatIsInTheReportAndNothingMore(t *testing.T) {
	const secret, hostile = "sk-0123456789abcdefghijklmnopqrstuv", `<b onclick=x>&"'{{.}}</b>`
	var out bytes.Buffer
	fmt.Fprintf(&out, result, `<i>evil-`+secret, `{"status_code":200,"body":{"model":"<u>m","choices":[{"message":{"content":"private words `+secret+`"},"finish_reason":"</svg>"}]}}`,
		`{"code":"invalid_output","message":"`+strings.ReplaceAll(hostile, `"`, `\"`)+secret+`"}`, 1, 0, 5, 5, "invalid_output")
	var a telemetry.Aggregate
	check(t, a.ReadResults(bytes.NewReader(out.Bytes())))
	a.Observe(sluice.Event{Type: limits.EventSlotAcquired, Lane: "</h3><script>" + secret, Account: "<a>", At: noon, InFlight: 1})
	a.Observe(sluice.Event{Type: limits.EventThrottled, At: noon, Outcome: sluice.Outcome{Kind: sluice.RateLimit, Err: errors.New("<b onclick " + secret)}})
	r := a.Report()
	r.Judge(telemetry.Advice{Stopped: "the key " + secret + " was refused"})
	blot := func(text string) string { return strings.ReplaceAll(text, secret, "***") }
	r.Redact(blot, blot)
	var b bytes.Buffer
	check(t, r.WriteHTML(&b))
	page := b.String()
	for _, bad := range []string{secret, "<b onclick", "<i>evil", "<u>m", "<script", "private words"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	if !strings.Contains(page, "&lt;b onclick=x&gt;") || !strings.Contains(page, "***") {
		t.Error("the message is lost")
	}
}

func TestTheWordsOfARefusalStandWhereTheVerdictSendsTheReader(t *testing.T) {
	for said, pointer := range map[string]string{"": "(1 rejection in 1 episode).", `,"error":"too many requests"`: "see the provider's message below"} {
		var s script
		s.at(0, "scheduler_started", `"account":"a"`)
		s.at(0, "throttled", `"account":"a","lane":"m","kind":"rate_limit","waiting":1`+said)
		s.at(0, "cooldown_started", `"account":"a","lane":"m","kind":"rate_limit","until":"2026-11-21T12:00:09Z","waiting":1`)
		s.at(9000, "cooldown_ended", `"account":"a","lane":"m","waiting":1`)
		r := fromFiles(t, nil, s.Bytes())
		r.Judge(telemetry.Advice{})
		var text strings.Builder
		check(t, r.WriteText(&text))
		if !strings.Contains(r.Verdict, pointer) || strings.Contains(text.String(), "too many requests") != (said != "") {
			t.Errorf("%s: %s", said, text.String())
		}
	}
}

func TestReportsOfLittleAreWritten(t *testing.T) {
	for name, observe := range map[string]func(*telemetry.Aggregate){
		"nothing": func(*telemetry.Aggregate) {},
		"a start": func(a *telemetry.Aggregate) { a.Observe(sluice.Event{Type: limits.EventStarted, At: noon}) },
		"a call": func(a *telemetry.Aggregate) {
			a.Observe(sluice.Event{Type: limits.EventSlotAcquired, At: noon, Lane: "m"})
		},
		"no time at all": func(a *telemetry.Aggregate) { a.Observe(sluice.Event{Type: limits.EventThrottled}) },
		"a limit": func(a *telemetry.Aggregate) {
			a.Observe(sluice.Event{Type: limits.EventLimitsChanged, At: noon, Dimension: 2, Limit: 5})
		},
		"an item": func(a *telemetry.Aggregate) {
			a.Observe(sluice.Event{Type: limits.EventItemDone, At: noon, Attempt: 1})
		},
		"backwards": func(a *telemetry.Aggregate) {
			for i := range 5 {
				a.Observe(sluice.Event{Type: limits.EventSlotAcquired, At: noon.AddDate(0, 0, -i), Lane: "m", Waiting: 1})
			}
		},
		"a century": func(a *telemetry.Aggregate) {
			for i := range 5 {
				a.Observe(sluice.Event{Type: limits.EventSlotAcquired, At: noon.AddDate(25*i, 0, 0), Lane: "m", Waiting: 1})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var a telemetry.Aggregate
			observe(&a)
			r := a.Report()
			r.Judge(telemetry.Advice{})
			r.Redact(strings.ToUpper, strings.ToUpper)
			var page, text bytes.Buffer
			check(t, r.WriteHTML(&page))
			check(t, r.WriteText(&text))
			if page.Len() == 0 || text.Len() == 0 || strings.Contains(page.String()+text.String(), "NaN") {
				t.Error(text.String())
			}
		})
	}
}
