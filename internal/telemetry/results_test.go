package telemetry_test

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/telemetry"
)

const result = `{"id":"x","custom_id":"%s","response":%s,"error":%s,"sluice":{"input":"00","attempts":%d,"throttles":%d,"wait_ms":%d,"latency_ms":%d,"input_tokens":2,"output_tokens":3,"cost_usd":null,"kind":"%s"}}` + "\n"

func TestFinishReasonsAndModelsOfEveryForm(t *testing.T) {
	var b bytes.Buffer
	for i, body := range []string{
		`{"model":"gpt","choices":[{"message":{"content":"x","finish_reason":"no"},"finish_reason":"length"},{"finish_reason":"stop"}]}`,
		`{"model":"claude","content":[{"text":"\"stop_reason\":\"no\""}],"stop_reason":"end_turn"}`,
		`{"modelVersion":"gemini","candidates":[{"content":{},"finishReason":"STOP"}]}`,
		`{"model":"o3","status":"completed","output":[]}`,
		`{"model":"o3","status":"completed","incomplete_details":null,"output":[]}`,
		`{"model":"o3","incomplete_details":{"reason":"max_output_tokens"},"output":[],"status":"incomplete"}`,
		`{"model":"o3","status":"incomplete","incomplete_details":{},"output":[]}`,
		`{"modelVersion":"gemini","promptFeedback":{"safetyRatings":[],"blockReason":"SAFETY"}}`,
		`"no object"`, `[]`, `{"choices":{}}`, `{"choices":[1]}`,
	} {
		fmt.Fprintf(&b, result, fmt.Sprint("r", i), `{"status_code":200,"body":`+body+`}`, "null", 1, 0, 1, 1, "ok")
	}
	r := fromFiles(t, b.Bytes(), nil)
	want := map[string]int{"length": 1, "end_turn": 1, "STOP": 1, "completed": 2, "max_output_tokens": 1, "incomplete": 1, "SAFETY": 1, "": 4}
	if !reflect.DeepEqual(r.Finish, want) || !reflect.DeepEqual(r.Models, map[string]int{"gpt": 1, "claude": 1, "gemini": 2, "o3": 4}) {
		t.Errorf("%v, %v", r.Finish, r.Models)
	}
}

func TestAnswersThatWereThereAlreadyAreCounted(t *testing.T) {
	line := fmt.Sprintf(result, "a", "null", "null", 0, 0, 9, 9, "ok")
	out := line + strings.Replace(line, `"kind"`, `"cached":true,"kind"`, 1) + strings.Replace(line, `"kind"`, `"cached":true,"kind"`, 1)
	r := fromFiles(t, []byte(out), nil)
	if r.Items.Total != 3 || r.Items.Reused != 2 || r.Waits.Count != 1 {
		t.Errorf("%+v, %d waits", r.Items, r.Waits.Count)
	}
}

func TestWhatWasSparedMakesNoCostOfAnUnknownPrice(t *testing.T) {
	unknown := fmt.Sprintf(result, "a", "null", "null", 1, 0, 9, 9, "ok")
	priced := strings.Replace(unknown, `"cost_usd":null`, `"cost_usd":0.5`, 1)
	spared := strings.NewReplacer(`"cost_usd":null`, `"cost_usd":0`, `"kind"`, `"cached":true,"kind"`).Replace(unknown)
	var s script
	s.at(0, "item_done", `"call":"a","kind":"ok","cost_usd":0.5`)
	s.at(9, "item_done", `"call":"b","kind":"ok","reused":true`)
	for text, want := range map[string]string{
		unknown + spared: "tokens     4 in, 6 out\n", priced + spared: "6 out; $0.50\n", priced + spared + unknown: "; $0.50 for 2 of 3 items\n",
		spared: "; $0.00\n", s.String(): "; $0.50\n",
	} {
		out, events := []byte(text), []byte(nil)
		if text == s.String() {
			out, events = nil, out
		}
		r := fromFiles(t, out, events)
		var b strings.Builder
		check(t, r.WriteText(&b))
		if !strings.Contains(b.String(), want) || (r.Cost == nil) != (r.Costed == 0) {
			t.Errorf("want %q in %s of %s", want, b.String(), text)
		}
	}
}

func TestACostIsWithoutTheNoiseOfItsSum(t *testing.T) {
	line := fmt.Sprintf(result, "a", "null", "null", 1, 0, 9, 9, "ok")
	r := fromFiles(t, []byte(strings.Replace(line, `"cost_usd":null`, `"cost_usd":0.1`, 1)+strings.Replace(line, `"cost_usd":null`, `"cost_usd":0.2`, 1)), nil)
	if r.Cost == nil || *r.Cost != 0.3 {
		t.Errorf("%v", *r.Cost)
	}
}

func TestALineThatIsNoResultIsNamed(t *testing.T) {
	good := fmt.Sprintf(result, "a", "null", "null", 1, 0, 1, 1, "ok")
	for text, word := range map[string]string{
		good + `{"prompt":"x"}` + "\n":                                "line 2: not a result",
		good + "\n" + `{"event":"throttled"}` + "\n":                  "line 3: not a result",
		good + "nonsense\n":                                           "line 2: not a result",
		strings.Replace(good, `"kind":"ok"`, `"kind":"nice"`, 1):      `line 1: sluice.kind: unknown kind "nice"`,
		strings.Replace(good, `"attempts":1`, `"attempts":-1`, 1):     "line 1: not a result",
		strings.Replace(good, `"wait_ms":1`, `"wait_ms":"soon"`, 1):   "line 1: sluice: wait_ms: not a whole number",
		strings.Replace(good, `"custom_id":"a"`, `"custom_id":12`, 1): "line 1: not a result",
	} {
		var a telemetry.Aggregate
		if err := a.ReadResults(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: want %q: %v", text, word, err)
		}
	}
	var a telemetry.Aggregate
	if err := a.ReadResults(strings.NewReader("\ufeff" + good + good[:50])); err != nil || a.Report().Items.Total != 1 || !a.Report().Cut {
		t.Errorf("a cut last line: %v, %+v", err, a.Report().Items)
	}
}

func FuzzReadResults(f *testing.F) {
	f.Add(fmt.Appendf(nil, result, "a", `{"status_code":200,"body":{"model":"m","choices":[{"finish_reason":"stop"}]}}`, "null", 1, 0, 1, 1, "ok"))
	f.Add(fmt.Appendf(nil, result, "b", "null", `{"code":"timeout","message":"late"}`, 6, 2, 9, 9, "timeout"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a telemetry.Aggregate
		if a.ReadResults(bytes.NewReader(b)) != nil {
			return
		}
		r := a.Report()
		r.Judge(telemetry.Advice{})
		var page, text bytes.Buffer
		check(t, r.WriteHTML(&page))
		check(t, r.WriteText(&text))
		if r.Items.OK+r.Items.Failed != r.Items.Total || r.Items.ThrottledOK > r.Items.Throttled || bytes.Contains(page.Bytes(), []byte("<script")) {
			t.Fatalf("%+v", r.Items)
		}
	})
}
