package plan_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sluice-llm/sluice/plan"
)

func TestReadLengthsOfARealTrace(t *testing.T) {
	f, err := os.Open("testdata/azure-llm-conv-2023-excerpt.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := plan.ReadLengths(f, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Calls) != 200 || got.Rows != 200 || !got.HasOutput || got.Calls[0] != (plan.Call{Input: 374, Output: 44}) ||
		got.Calls[1] != (plan.Call{Input: 396, Output: 109}) {
		t.Errorf("%d rows, the first %+v", got.Rows, got.Calls[:2])
	}
}

func TestReadLengthsTakesAFairSampleOfALongTable(t *testing.T) {
	var table strings.Builder
	table.WriteString("\ufeffmax_tokens, Output_Tokens ,x,INPUT_TOKENS\r\n")
	for i := range 10_000 {
		fmt.Fprintf(&table, "%d,\"%d\",\"what\never%200s\",%d\r\n", i%7, i+1, "", i+1)
	}
	got, err := plan.ReadLengths(strings.NewReader(table.String()), 1000)
	if err != nil {
		t.Fatal(err)
	}
	mean, before := 0.0, 0
	for _, c := range got.Calls {
		if c.Input <= before || c.Output != c.Input || c.MaxTokens != (c.Input-1)%7 {
			t.Fatalf("%+v after %d", c, before)
		}
		before = c.Input
		mean += float64(c.Input) / float64(len(got.Calls))
	}
	if len(got.Calls) != 1000 || got.Rows != 10_000 || mean < 4500 || mean > 5500 {
		t.Errorf("%d of %d rows of mean %g", len(got.Calls), got.Rows, mean)
	}
	again, err := plan.ReadLengths(strings.NewReader(table.String()), 1000)
	if err != nil || !reflect.DeepEqual(got, again) {
		t.Errorf("the same twice differs, %v", err)
	}
}

func TestReadLengthsKnowsColumnsByManyNames(t *testing.T) {
	for text, want := range map[string]plan.Call{
		"Prompt Tokens,max-tokens,cached_tokens\n 7 ,8,6\n":            {Input: 7, MaxTokens: 8, Cached: 6},
		"\ufeff\"input_tokens\",Completion_Tokens\r\n1,0\r\n":          {Input: 1, Output: plan.NoOutput},
		"InputTokens,output_tokens,max_completion_tokens\n5,,\n":       {Input: 5},
		"id,cached_input_tokens,ContextTokens,maxOutputTokens\na,,3,4": {Input: 3, MaxTokens: 4},
		"note,input_tokens\n\"two\nlines, \"\"quoted\"\"\",6\n":        {Input: 6},
	} {
		got, err := plan.ReadLengths(strings.NewReader(text), 10)
		if err != nil || len(got.Calls) != 1 || got.Calls[0] != want || got.Rows != 1 {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestReadLengthsNamesTheLineThatMakesNoSense(t *testing.T) {
	const header = "input_tokens,output_tokens\n"
	for word, text := range map[string]string{
		"line 1: empty":   "",
		"line 2: no rows": header,
		"line 1: no column of input tokens among \"a, b\"":       "a,b\n1,2\n",
		"line 1: \"input_tokens\" and \"Prompt-Tokens\" say":     "input_tokens,Prompt-Tokens,output_tokens\n",
		"line 3: input_tokens is \"x\"":                          header + "1,2\nx,2\n",
		"line 2: input_tokens is \"0\": want a number from 1":    header + "0,2\n",
		"line 2: output_tokens is \"-2\"":                        header + "1,-2\n",
		"line 3: input_tokens is \"\": want a number from 1":     header + "1,2\n,2\n",
		"line 3: 9 tokens are cached of an input of 7":           "input_tokens,cached_tokens\n1,1\n7,9\n",
		"line 4: wrong number of fields: 1, where the header":    header + "1,2\n\n1\n",
		"line 2: extraneous or missing \"":                       header + "\"1,2\n",
		"line 2: bare":                                           header + "1\"2,2\n",
		"line 3: longer than 1048576 bytes":                      header + "1,2\n\"1,2" + strings.Repeat("\n1", 2<<20),
		"line 1: longer than":                                    strings.Repeat("1", 2<<20),
		"line 2: output_tokens is \"5000000000\": want a number": header + "1,5000000000\n",
	} {
		_, err := plan.ReadLengths(strings.NewReader(text), 10)
		if wrong, ok := errors.AsType[*plan.LengthsError](err); !ok || wrong.Line < 1 || !strings.Contains(err.Error(), word) {
			t.Errorf("want an error that says %s: %v", word, err)
		}
	}
	if _, err := plan.ReadLengths(strings.NewReader(header+"1,2\n"), 0); err == nil {
		t.Error("a sample of none is made")
	}
	broken := io.MultiReader(strings.NewReader(header+"1,2\n"), iotest.ErrReader(errors.New("the disk is gone")))
	if _, err := plan.ReadLengths(broken, 10); err == nil || !strings.Contains(err.Error(), "the disk is gone") {
		t.Errorf("%v", err)
	}
}

// FuzzReadLengths: a table gives calls whose lengths are none below zero, or an error that names the line.
func FuzzReadLengths(f *testing.F) {
	for _, seed := range []string{
		"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n", "", "input_tokens\n",
		"output_tokens,input_tokens,max_tokens\n1,\"2\",3\n\n4,5,6", "input_tokens,output_tokens\n1,2\n3,\n",
		"\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\r\n1,2,3\r\n", "input_tokens\n\"1\n", "a,b\n1,2",
		"Prompt Tokens,max-tokens,cached_tokens\n 7 ,8,9\n", "input_tokens\n-1", "input_tokens\n1,2\n",
		"input_tokens\n99999999999999999999", "\"", "input_tokens\n\"\n\n1\"",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := plan.ReadLengths(bytes.NewReader(b), 5)
		if err != nil {
			if wrong, ok := errors.AsType[*plan.LengthsError](err); !ok || wrong.Line < 1 {
				t.Fatalf("%#v", err)
			}
			return
		}
		if len(got.Calls) != min(got.Rows, 5) || got.Rows == 0 {
			t.Fatalf("%d calls of %d", len(got.Calls), got.Rows)
		}
		for _, c := range got.Calls {
			if min(c.Input, c.Cached, c.MaxTokens, c.Output-plan.NoOutput) < 0 {
				t.Fatalf("%+v", c)
			}
		}
	})
}
