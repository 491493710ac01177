package telemetry_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/limits"
)

func TestQueriesPickEvents(t *testing.T) {
	var s script
	s.at(0, "slot_acquired", `"lane":"gpt-4o","call":"a b","wait_ms":1500,"active":3`)
	s.at(1000, "slot_acquired", `"lane":"gpt-4o-mini","call":"q2","active":4`)
	s.at(2000, "throttled", `"lane":"gpt-4o","call":"q\"3","kind":"rate_limit","dimension":"rpm","limit":500,"error":"slow down"`)
	s.at(3000, "item_done", `"kind":"ok","usage":{"input_tokens":5,"output_tokens":70},"cost_usd":0.0125,"reused":true`)
	s.at(4000, "item_done", `"kind":"timeout","until":"2026-11-21T12:00:09Z","usage":{"output_tokens":7}`)
	for text, want := range map[string]string{
		"event=slot_acquired":                        "12",
		"event=slot_acquired wait_ms>1000":           "1",
		"  event = slot_acquired   wait_ms > 1000 ":  "1",
		"event!=slot_acquired":                       "345",
		"wait_ms=0":                                  "2345",
		"wait_ms<=1500 wait_ms>=1500":                "1",
		"lane=gpt-4o":                                "13",
		"lane~gpt-4o":                                "123",
		`lane=""`:                                    "45",
		`call="a b"`:                                 "1",
		`call='q"3'`:                                 "3",
		`call="q\"3"`:                                "3",
		"error~slow":                                 "3",
		`error~'slow down' kind=rate_limit`:          "3",
		"dimension=rpm limit<600":                    "3",
		`dimension=""`:                               "1245",
		"at>2026-11-21T12:00:01.1Z":                  "2345",
		"at>2026-11-21T14:00:02+02:00":               "345",
		"at<2026-11-20":                              "",
		"until>2026-11-21T12:00:00Z":                 "5",
		"until<2027-01-01":                           "5",
		"until!=2026-11-21T12:00:09Z":                "1234",
		"usage.output_tokens>=7":                     "45",
		"usage.output_tokens>7 usage.input_tokens=5": "4",
		"cost_usd>0.01":                              "4",
		"reused=true":                                "4",
		"reused!=true":                               "1235",
		"active>3":                                   "2",
		"kind=ok":                                    "4",
		`kind=""`:                                    "12",
		"wait_ms>1e3":                                "1",
		"event=item_done kind!=ok usage.output_tokens=7.0": "5",
	} {
		q, err := telemetry.ParseQuery(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, n := "", 0
		_, err = telemetry.ReadEvents(bytes.NewReader(s.Bytes()), func(_ []byte, e *sluice.Event) error {
			if n++; q.Match(e) {
				got += fmt.Sprint(n)
			}
			return nil
		})
		if err != nil || got != want {
			t.Errorf("%s picks %q, want %q: %v", text, got, want, err)
		}
		again, err := telemetry.ParseQuery(q.String())
		if err != nil || again.String() != q.String() {
			t.Errorf("%s is written %s: %v", text, q, err)
		}
	}
}

func TestQueriesThatCannotBeMeantAreRefused(t *testing.T) {
	for text, word := range map[string]string{
		"":                          "no condition",
		"   ":                       "no condition",
		"evnt=throttled":            `no field "evnt" (did you mean event?)`,
		"usage.ouput_tokens>1":      "did you mean usage.output_tokens or",
		"usage>1":                   `no field "usage"`,
		"event=throtled":            `event=throtled: no event is "throtled" (did you mean throttled?)`,
		"kind=ratelimit":            "did you mean rate_limit?",
		"dimension!=rmp":            "no dimension is",
		"source=headers":            "did you mean header?",
		"event":                     "event: an operator must follow",
		"event throttled":           "event: an operator must follow",
		"event=":                    "a value must follow",
		"event= ":                   "a value must follow",
		"wait_ms>soon":              "a number must follow",
		"wait_ms>1s":                "without a unit",
		"wait_ms>NaN":               "a number must follow",
		"wait_ms~1":                 "~ looks into texts alone",
		"lane>a":                    "> compares numbers and times alone",
		"reused=yes":                "it is true or false",
		"reused>false":              "> compares",
		"at>yesterday":              "an instant must follow",
		"at~2026":                   "~ looks into texts",
		`call="a`:                   "the closing quote is missing",
		`call="a"b`:                 "a space must follow the closing quote",
		"wait_ms=>5":                "a number must follow",
		"=5":                        `no field ""`,
		"event=throttled AND x=1":   `no field "AND"`,
		"event=throttled,slot_used": "no event is",
	} {
		if q, err := telemetry.ParseQuery(text); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q is read as %q; want an error that says %q: %v", text, q, word, err)
		}
	}
}

// fieldWords are fields and values that they can have, in a query, and as JSON.
func fieldWords(t *rapid.T) (name, word string, value any) {
	texts := rapid.SampledFrom([]string{"", "a", "b", "a b", `q"`, `\`, "'", "=", "x\ty", "é", " "})
	numbers := rapid.IntRange(0, 3)
	switch i := rapid.IntRange(0, 4).Draw(t, "sort"); i {
	case 0:
		v := texts.Draw(t, "text")
		return rapid.SampledFrom([]string{"lane", "call", "account", "member", "tenant", "error", "finish_reason"}).Draw(t, "field"), v, v
	case 1:
		v := numbers.Draw(t, "number")
		return rapid.SampledFrom([]string{"wait_ms", "latency_ms", "attempt", "throttles", "limit", "active", "max", "waiting"}).Draw(t, "field"), strconv.Itoa(v), v
	case 2:
		v := noon.Truncate(time.Second).Add(time.Duration(numbers.Draw(t, "seconds")) * time.Second).Format(time.RFC3339)
		return "at", v, v
	case 3:
		v := rapid.Bool().Draw(t, "truth")
		return "reused", strconv.FormatBool(v), v
	}
	v := rapid.SampledFrom([]string{"rate_limit", "timeout"}).Draw(t, "kind")
	return "kind", v, v
}

// holds is the plain model: what a term says of an event that was decoded as JSON.
func holds(event map[string]any, name, op string, value any) bool {
	got := event[name]
	switch want := value.(type) {
	case string:
		text, _ := got.(string)
		if op == "~" {
			return strings.Contains(text, want)
		}
		return order(strings.Compare(text, want), op)
	case int:
		number, _ := got.(float64)
		return order(int(number)-want, op)
	case bool:
		truth, _ := got.(bool)
		return (truth == want) == (op == "=")
	}
	return false
}

func order(c int, op string) bool {
	return map[string]bool{"=": c == 0, "!=": c != 0, "<": c < 0, "<=": c <= 0, ">": c > 0, ">=": c >= 0}[op]
}

func TestQueriesMeanWhatAPlainModelSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		event := map[string]any{"event": "item_done", "at": noon.Truncate(time.Second).Format(time.RFC3339), "kind": "ok"}
		for range rapid.IntRange(0, 6).Draw(t, "fields") {
			name, _, value := fieldWords(t)
			event[name] = value
		}
		line, err := json.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		var decoded map[string]any
		if err := json.Unmarshal(line, &decoded); err != nil {
			t.Fatal(err)
		}
		var terms []string
		want := true
		for range rapid.IntRange(1, 3).Draw(t, "terms") {
			name, word, value := fieldWords(t)
			ops := []string{"=", "!="}
			switch value.(type) {
			case int:
				ops = append(ops, "<", "<=", ">", ">=")
			case string:
				if name == "at" {
					ops = append(ops, "<", "<=", ">", ">=")
				} else {
					ops = append(ops, "~")
				}
			}
			op := rapid.SampledFrom(ops).Draw(t, "op")
			terms = append(terms, name+op+`"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word)+`"`)
			want = want && holds(decoded, name, op, value)
		}
		q, err := telemetry.ParseQuery(strings.Join(terms, " "))
		if err != nil {
			t.Fatalf("%s: %v", terms, err)
		}
		if _, err := telemetry.ReadEvents(bytes.NewReader(line), func(_ []byte, e *sluice.Event) error {
			if got := q.Match(e); got != want {
				t.Fatalf("%s of %s: %v, want %v", terms, line, got, want)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		again, err := telemetry.ParseQuery(q.String())
		if err != nil || again.String() != q.String() {
			t.Fatalf("%s is written %s, and that is read as %s: %v", terms, q, again, err)
		}
	})
}

func FuzzParseQuery(f *testing.F) {
	for _, text := range []string{"event=slot_acquired wait_ms>1000", `call="a \" b" lane~'x'`, "at>2026-11-21T10:00:00Z", "usage.output_tokens<=5", "a=", `x="`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := telemetry.ParseQuery(text)
		if err != nil {
			return
		}
		again, err := telemetry.ParseQuery(q.String())
		if err != nil || again.String() != q.String() {
			t.Fatalf("%q is written %q: %v", text, q, err)
		}
		e := full(limits.EventThrottled)
		if q.Match(&e) != again.Match(&e) {
			t.Fatalf("%q and %q mean different things", text, q)
		}
	})
}

func TestEveryTypeOfEventIsKnown(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "limits", "event.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			if name, ok := v.Type.(*ast.Ident); ok && name.Name == "EventType" {
				text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				check(t, err)
				types = append(types, text)
			}
		}
	}
	if len(types) < 19 {
		t.Fatalf("only %v are declared", types)
	}
	for _, typ := range types {
		if !slices.Contains(telemetry.EventTypes(), limits.EventType(typ)) {
			t.Errorf("%s is no known type: a query would refuse it", typ)
		}
	}
}
