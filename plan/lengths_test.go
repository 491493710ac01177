package plan_test

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

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
	if len(got) != 200 || got[0] != (plan.Call{Input: 374, Output: 44}) || got[1] != (plan.Call{Input: 396, Output: 109}) {
		t.Errorf("%d rows, the first %+v", len(got), got[:2])
	}
}

func TestReadLengthsTakesAFairSampleOfALongTable(t *testing.T) {
	var table strings.Builder
	table.WriteString("\ufeffmax_tokens, Output_Tokens ,x,INPUT_TOKENS\r\n")
	for i := range 10_000 {
		fmt.Fprintf(&table, "%d,\"%d\",whatever,%d\r\n", i%7, i+1, i)
	}
	got, err := plan.ReadLengths(strings.NewReader(table.String()), 1000)
	if err != nil {
		t.Fatal(err)
	}
	mean, before := 0, -1
	for _, c := range got {
		if c.Input <= before || c.Output != c.Input+1 || c.MaxTokens != c.Input%7 {
			t.Fatalf("%+v after %d", c, before)
		}
		before = c.Input
		mean += c.Input / len(got)
	}
	if len(got) != 1000 || mean < 4500 || mean > 5500 {
		t.Errorf("%d rows of mean %d", len(got), mean)
	}
	again, err := plan.ReadLengths(strings.NewReader(table.String()), 1000)
	if err != nil || !reflect.DeepEqual(got, again) {
		t.Errorf("the same twice differs, %v", err)
	}
}

func TestReadLengthsNamesTheLineThatMakesNoSense(t *testing.T) {
	const header = "input_tokens,output_tokens\n"
	for word, text := range map[string]string{
		"empty":                         "",
		"no rows":                       header,
		"names no column":               "a,b\n1,2\n",
		"says \"input_tokens\" again":   "input_tokens,input_tokens,output_tokens\n",
		"line 3: input tokens are":      header + "1,2\nx,2\n",
		"line 2: output tokens are \"-": header + "1,-2\n",
		"line 4: it has 1 fields":       header + "1,2\n\n1\n",
		"line 2: its quotes":            header + "\"1,2\n",
		"line 2: longer than":           header + strings.Repeat("1", 2<<20),
		"from 0 to 1000000000":          header + "1,5000000000\n",
	} {
		if _, err := plan.ReadLengths(strings.NewReader(text), 10); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("want an error that says %s: %v", word, err)
		}
	}
	if _, err := plan.ReadLengths(strings.NewReader(header+"1,2\n"), 0); err == nil {
		t.Error("a sample of none is made")
	}
}

func FuzzReadLengths(f *testing.F) {
	f.Add([]byte("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"))
	f.Add([]byte("output_tokens,input_tokens,max_tokens\n1,\"2\",3\n\n4,5,6"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := plan.ReadLengths(bytes.NewReader(b), 5)
		if err == nil && (len(got) == 0 || len(got) > 5) {
			t.Fatalf("%d calls", len(got))
		}
		for _, c := range got {
			if c.Input < 0 || c.MaxTokens < 0 || c.Output == 0 {
				t.Fatalf("%+v", c)
			}
		}
	})
}
