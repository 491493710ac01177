module github.com/sluice-llm/sluice

go 1.26
