package provider_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// billed is a response as a provider sends it, with what it costs, in 1e-10 US dollars, calculated by hand from the prices of the provider's page.
type billed struct {
	provider, model string
	endpoint        provider.Endpoint
	body            string
	batch           bool // it came from a Batch API that does not say so
	units           int64
}

// byHand makes random responses of six providers. The prices are written out here: none is read from the table.
var byHand = []func(r *rand.Rand) billed{
	func(r *rand.Rand) billed { // gpt-5: $1.25, cached $0.125, $10; batch and flex half of it, priority twice
		in, out := r.Int64N(20_000), r.Int64N(3_000)
		cached := r.Int64N(in + 1)
		tier, halves := "default", int64(2)
		switch r.IntN(4) {
		case 1:
			tier, halves = "flex", 1
		case 2:
			tier, halves = "priority", 4
		}
		batch := tier == "default" && r.IntN(4) == 0
		if batch {
			halves = 1
		}
		return billed{"openai", "gpt-5", provider.ChatCompletions, fmt.Sprintf(`{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,`+
			`"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}},"service_tier":"%s"}`, in, out, cached, tier), batch,
			((in-cached)*12_500 + cached*1_250 + out*100_000) / 2 * halves}
	},
	func(r *rand.Rand) billed { // gpt-4.1: $2, cached $0.50, $8; $10 per 1,000 web searches
		in, out, searches := r.Int64N(20_000), r.Int64N(3_000), r.Int64N(4)
		cached := r.Int64N(in + 1)
		return billed{"openai", "gpt-4.1-2025-04-14", provider.Responses, fmt.Sprintf(`{"status":"completed","output":[%s{"type":"message"}],"usage":{"input_tokens":%d,`+
			`"input_tokens_details":{"cached_tokens":%d},"output_tokens":%d}}`, strings.Repeat(`{"type":"web_search_call"},`, int(searches)), in, cached, out), false,
			(in-cached)*20_000 + cached*5_000 + out*80_000 + searches*100_000_000}
	},
	func(r *rand.Rand) billed { // Claude Sonnet 4.5: $3, $15; cache read × 0.1, write × 1.25, write for an hour × 2; batch half; $10 per 1,000 searches
		in, read, five, hour, out, searches := r.Int64N(5_000), r.Int64N(50_000), r.Int64N(9_000), r.Int64N(9_000), r.Int64N(3_000), r.Int64N(3)
		tier, halves := "standard", int64(2)
		if r.IntN(3) == 0 {
			tier, halves = "batch", 1
		}
		return billed{"anthropic", "claude-sonnet-4-5-20250929", provider.Messages, fmt.Sprintf(`{"type":"message","content":[],"stop_reason":"end_turn","usage":{"input_tokens":%d,`+
			`"cache_read_input_tokens":%d,"cache_creation_input_tokens":%d,"cache_creation":{"ephemeral_5m_input_tokens":%d,"ephemeral_1h_input_tokens":%d},`+
			`"output_tokens":%d,"server_tool_use":{"web_search_requests":%d},"service_tier":"%s"}}`, in, read, five+hour, five, hour, out, searches, tier), false,
			(in*30_000+read*3_000+five*37_500+hour*60_000+out*150_000)/2*halves + searches*100_000_000}
	},
	func(r *rand.Rand) billed { // Gemini 2.5 Flash: $0.30, cached $0.03, $2.50, thoughts like the answer; batch half
		in, out, thoughts := r.Int64N(50_000), r.Int64N(3_000), r.Int64N(3_000)
		cached, batch, halves := r.Int64N(in+1), r.IntN(3) == 0, int64(2)
		if batch {
			halves = 1
		}
		return billed{"gemini", "gemini-2.5-flash", provider.GenerateContent, fmt.Sprintf(`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":%d,`+
			`"cachedContentTokenCount":%d,"candidatesTokenCount":%d,"thoughtsTokenCount":%d}}`, in, cached, out, thoughts), batch,
			((in-cached)*3_000 + cached*300 + (out+thoughts)*25_000) / 2 * halves}
	},
	func(r *rand.Rand) billed { // Mistral Large: $0.50, cached $0.05, $1.50
		in, out := r.Int64N(30_000), r.Int64N(3_000)
		cached := r.Int64N(in + 1)
		return billed{"mistral", "mistral-large-latest", provider.ChatCompletions, fmt.Sprintf(`{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,`+
			`"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}}`, in, out, cached), false,
			(in-cached)*5_000 + cached*500 + out*15_000}
	},
	func(r *rand.Rand) billed { // Grok 4.20: $1.25, cached $0.20, $2.50, reasoning beside the answer; batch $1 and $2
		in, out, thoughts := r.Int64N(30_000), r.Int64N(3_000), r.Int64N(3_000)
		cached, batch, fifths := r.Int64N(in+1), r.IntN(3) == 0, int64(5)
		if batch {
			fifths = 4
		}
		return billed{"xai", "grok-4.20", provider.ChatCompletions, fmt.Sprintf(`{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,`+
			`"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d},"completion_tokens_details":{"reasoning_tokens":%d}}}`, in, out, in+out+thoughts, cached, thoughts), batch,
			((in-cached)*12_500 + cached*2_000 + (out+thoughts)*25_000) / 5 * fifths}
	},
	func(r *rand.Rand) billed { // DeepSeek Chat: $0.28, cached $0.028, $0.42
		in, out := r.Int64N(30_000), r.Int64N(3_000)
		cached := r.Int64N(in + 1)
		return billed{"deepseek", "deepseek-chat", provider.ChatCompletions, fmt.Sprintf(`{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,`+
			`"prompt_cache_hit_tokens":%d,"prompt_cache_miss_tokens":%d,"completion_tokens":%d}}`, in, cached, in-cached, out), false,
			(in-cached)*2_800 + cached*280 + out*4_200}
	},
}

func TestAThousandResponsesCostAsCalculatedByHand(t *testing.T) {
	luck := rand.New(rand.NewPCG(7, 23))
	sums, units := make(map[string]float64), make(map[string]int64)
	for i := range 1000 {
		r := byHand[i%len(byHand)](luck)
		u, _, ok := provider.ParseUsage(r.endpoint, []byte(r.body))
		m, found := pricing.Find(r.provider, r.model)
		p, known := provider.Lookup(r.provider)
		if !ok || !found || !known {
			t.Fatalf("usage %v, price %v, provider %v of %s", ok, found, known, r.body)
		}
		if r.batch {
			u.Service = limits.ServiceBatch
		}
		cost := m.Price().WithBatch(p.Batches.Price).Cost(u)
		if cost.Estimated != 0 || cost.Unpriced != 0 || math.Abs(cost.USD-float64(r.units)/1e10) > 1e-9 {
			t.Errorf("%+v, calculated %v, of %s", cost, float64(r.units)/1e10, r.body)
		}
		sums[r.provider] += cost.USD
		units[r.provider] += r.units
	}
	for name, usd := range sums {
		hand := float64(units[name]) / 1e10
		t.Logf("%-10s $%.4f, by hand $%.4f", name, usd, hand)
		if math.Round(usd*100) != math.Round(hand*100) {
			t.Errorf("%s: $%v, by hand $%v", name, usd, hand)
		}
	}
}
