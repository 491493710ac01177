package docs_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
)

// api.md promises these fields: files that version 0.1 wrote are read, and programs read what is written.
func TestJSONOfEarlierVersionsIsReadAndWritten(t *testing.T) {
	const at, later = `"2026-01-02T03:04:05Z"`, `"2026-01-02T03:04:06Z"`
	for text, v := range map[string]any{
		`{"memory_bytes":1,"time_ns":2,"tokens":3,"concurrent_nodes":4,"concurrent_calls":5,"llm_calls":6,"warning_threshold":0.7}`: new(limits.ResourceLimits),
		`{"memory_bytes":1,"time_ns":2,"tokens":3,"concurrent_nodes":4,"concurrent_calls":5,"llm_calls":6}`:                         new(limits.ResourceUsage),
		`{"version":1,"status":"paused","reason":"r","pid":2,"hash":"h","started_at":` + at + `,"updated_at":` + later + `,
			"heartbeat":` + later + `,"pause_count":3,"rate_limit_until":` + later + `,"rate_limit":{"kind":"rate_limit","dimension":"rpm",
			"lane":"m","source":"s","text":"t","until":` + later + `,"seen_at":` + at + `},"outlook":"o","total":4,
			"done":7,"failed":8,"throttles":9,"input_tokens":10,"output_tokens":11}`: new(work.State),
		`{"custom_id":"a","line":1,"state":"failed","kind":"timeout","final":true,"stage":"t","exit_code":2,"signal":"s","attempts":3,
			"throttles":4,"wait_ms":5,"queued_ms":6,"cooldown_ms":7,"backoff_ms":8,"latency_ms":9,"cpu_ms":10,"max_rss_bytes":11,
			"started_at":` + at + `,"ended_at":` + later + `,"input_tokens":12,"output_tokens":13,"cost_usd":14,"error":null,"result":{},
			"dir":"d","input":"i"}`: new(proc.Result),
	} {
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(v); err != nil {
			t.Errorf("%T: %v", v, err)
		}
		var want bytes.Buffer
		_ = json.Compact(&want, []byte(text))
		if b, err := json.Marshal(v); err != nil || string(b) != want.String() {
			t.Errorf("%T: %v\nwrites %s\nreads  %s", v, err, b, &want)
		}
	}
}
