package rows_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/internal/rows"
)

func TestItemsOfAnArrayAreRows(t *testing.T) {
	want := []string{`{"a":1,"b":[1,2]}`, `text, "quoted"`, `{"c":"]"}`, ": [1] is neither an object nor a string", ": the string is empty"}
	items := []string{"{\"a\": 1,\n\"b\":\t[1, 2]}", `"text, \"quoted\""`, `{"c":"]"}`, "[1]", `""`}
	for name, text := range map[string]string{
		"pretty-printed":       "\n[\n  " + strings.Join(items, ",\n  ") + "\n]\n\n",
		"on one line":          "[" + strings.Join(items, ",") + "]",
		"with a mark and CRLF": "\ufeff [\r\n" + strings.Join(items, "\r\n,\r\n") + "\r\n]\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "in.json", text)
			inOrder, again, err := readFile(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(inOrder, again); d != "" {
				t.Errorf("items read again: -want +got\n%s", d)
			}
			piped, err := all(rows.Stream(context.Background(), iotest.OneByteReader(strings.NewReader(text))))
			if d := cmp.Diff(inOrder, piped); d != "" || err != nil {
				t.Errorf("from standard input: error %v, -want +got\n%s", err, d)
			}
			var got []string
			for i, r := range inOrder {
				said := r.Text
				if r.Bad != "" {
					said += ": " + r.Bad
				}
				if got = append(got, said); r.Line != i+1 {
					t.Errorf("item %d has number %d", i+1, r.Line)
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}

func TestLinesThatBeginWithABracketAreNotAnArray(t *testing.T) {
	for _, text := range []string{"[INFO] started\n[1]\n", "[1, 2]\n{}", "[", "[[\"a\"]]", " [ \n"} {
		got, _, err := readFile(write(t, "in.txt", text), nil)
		if err != nil || len(got) == 0 || !strings.HasPrefix(text, strings.TrimRight(got[0].Text, "\n")) {
			t.Errorf("%q: %v, error %v", text, got, err)
		}
	}
}

func TestErrorsOfAnArrayNameLineAndItem(t *testing.T) {
	for text, want := range map[string]string{
		"[{\"a\":1},\n{\"b\":,\n\"c\":2}]":                               "line 2, item 2: broken JSON",
		"[{\"a\":1},\n{\"b\":1,\n\n\"c\":x}]":                            "line 4, item 2: broken JSON",
		"[{\"a\":1},\n{\"b\":1}\n{\"c\":1}]":                             "line 3, item 3: a comma is missing before this item",
		"[{\"a\":1},\n]":                                                 "line 2, item 2: broken JSON",
		"[{\"a\":1},\n{\"b\":1}\n":                                       "line 3, item 2: the JSON array is not closed",
		"[{\"a\":1},\n{\"b\":":                                           "line 2, item 2: the JSON array is not closed",
		"[{\"a\":1}]\n[{\"b\":1}]\n":                                     "line 1: more text follows the end of the JSON array",
		"[{\"a\":1}\n] trailing":                                         "line 2: more text follows the end of the JSON array",
		"[{\"a\":1},\n\n{\"b\":\"" + strings.Repeat("x", 100) + "\n\"}]": "line 3, item 2: broken JSON",
	} {
		_, _, err := readFile(write(t, "in.json", text), nil)
		wrong, ok := errors.AsType[*rows.Error](err)
		if !ok || !strings.HasSuffix(err.Error(), " "+want) || wrong.Hint == "" {
			t.Errorf("%.60q: error %v, want %q", text, err, want)
		}
	}
	_, err := all(rows.Stream(context.Background(), io.MultiReader(strings.NewReader(`[{"a":1},`), iotest.ErrReader(io.ErrClosedPipe))))
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("an error of the input comes as %v", err)
	}
}

func TestAnArrayIsNotLoaded(t *testing.T) {
	item := fmt.Sprintf(`{"a":%q},`, strings.Repeat("x", 100_000)) + "\n"
	input := io.MultiReader(strings.NewReader("["), io.LimitReader(&repeated{text: item}, int64(500*len(item))), strings.NewReader("{}]"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := 0
	for _, err := range rows.Stream(context.Background(), input) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; n != 501 || allocated > 10<<20 {
		t.Errorf("%d items of 100 kB allocated %d bytes in all", n, allocated)
	}
}

// repeated is a text without end.
type repeated struct {
	text string
	at   int
}

func (r *repeated) Read(p []byte) (int, error) {
	n := copy(p, r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	return n, nil
}
