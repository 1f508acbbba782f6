// The pipeline as an event simulation in plain C++: one priority queue of completions, arrays for everything else.
//
// Reads a description from stdin (see baselines.py), simulates it `repeats` times and writes the least processor time in
// seconds to stdout, the finish instants of the last repeat as float64 to the file named on the command line.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <queue>
#include <vector>

struct Stage {
    int max_batch, replicas;
    std::vector<double> service_ms;
    std::vector<int> children;
    bool from_source;
    int parents;
};

struct Completion {
    double at_ms;
    int stage;
    int64_t order;
    int first, size;
};

struct Later {
    bool operator()(const Completion& a, const Completion& b) const {
        if (a.at_ms != b.at_ms) return a.at_ms > b.at_ms;
        if (a.stage != b.stage) return a.stage > b.stage;
        return a.order > b.order;
    }
};

static void simulate(const std::vector<Stage>& stages, const std::vector<double>& arrival_ms,
                     std::vector<double>& finish_ms) {
    const int count = static_cast<int>(stages.size());
    const int queries = static_cast<int>(arrival_ms.size());
    std::vector<std::vector<int>> queue(count);
    std::vector<size_t> head(count, 0);
    std::vector<int> idle(count);
    std::vector<std::vector<uint8_t>> waiting(count);
    std::vector<char> touched(count, 0);
    for (int s = 0; s < count; ++s) {
        queue[s].reserve(queries);
        idle[s] = stages[s].replicas;
        if (stages[s].parents > 1) waiting[s].assign(queries, static_cast<uint8_t>(stages[s].parents));
    }
    std::priority_queue<Completion, std::vector<Completion>, Later> completions;
    int64_t order = 0;
    int next = 0;
    auto enter = [&](int s, int query) {
        if (stages[s].parents > 1 && --waiting[s][query] > 0) return;
        queue[s].push_back(query);
        touched[s] = 1;
    };
    while (next < queries || !completions.empty()) {
        double now;
        if (completions.empty())
            now = arrival_ms[next];
        else if (next == queries)
            now = completions.top().at_ms;
        else
            now = std::min(arrival_ms[next], completions.top().at_ms);
        while (!completions.empty() && completions.top().at_ms == now) {
            const Completion done = completions.top();
            completions.pop();
            ++idle[done.stage];
            touched[done.stage] = 1;
            const bool last = stages[done.stage].children.empty();
            for (int i = done.first; i < done.first + done.size; ++i) {
                const int query = queue[done.stage][i];
                if (last && finish_ms[query] < now) finish_ms[query] = now;
                for (const int child : stages[done.stage].children) enter(child, query);
            }
        }
        while (next < queries && arrival_ms[next] == now) {
            for (int s = 0; s < count; ++s)
                if (stages[s].from_source) enter(s, next);
            ++next;
        }
        for (int s = 0; s < count; ++s) {
            if (!touched[s]) continue;
            touched[s] = 0;
            while (idle[s] > 0 && head[s] < queue[s].size()) {
                const int size = static_cast<int>(
                    std::min<size_t>(stages[s].max_batch, queue[s].size() - head[s]));
                completions.push({now + stages[s].service_ms[size], s, order++, static_cast<int>(head[s]), size});
                head[s] += size;
                --idle[s];
            }
        }
    }
}

int main(int argc, char** argv) {
    int count, queries, repeats;
    if (argc != 3 || std::scanf("%d %d %d", &count, &queries, &repeats) != 3) return 2;
    std::vector<Stage> stages(count);
    for (int s = 0; s < count; ++s) {
        int parents;
        if (std::scanf("%d %d %d", &stages[s].max_batch, &stages[s].replicas, &parents) != 3) return 2;
        stages[s].parents = parents;
        stages[s].from_source = false;
        for (int i = 0; i < parents; ++i) {
            int parent;
            if (std::scanf("%d", &parent) != 1) return 2;
            if (parent < 0)
                stages[s].from_source = true;
            else
                stages[parent].children.push_back(s);
        }
        stages[s].service_ms.resize(stages[s].max_batch + 1);
        for (double& ms : stages[s].service_ms)
            if (std::scanf("%la", &ms) != 1) return 2;
    }
    std::vector<double> arrival_ms(queries), finish_ms;
    FILE* in = std::fopen(argv[1], "rb");
    if (in == nullptr || std::fread(arrival_ms.data(), 8, queries, in) != static_cast<size_t>(queries)) return 2;
    std::fclose(in);
    double best_s = 1e300;
    for (int r = 0; r < repeats; ++r) {
        finish_ms.assign(queries, 0.0);
        const std::clock_t begin = std::clock();
        simulate(stages, arrival_ms, finish_ms);
        best_s = std::min(best_s, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    }
    FILE* out = std::fopen(argv[2], "wb");
    if (out == nullptr) return 2;
    std::fwrite(finish_ms.data(), 8, queries, out);
    std::fclose(out);
    std::printf("%.9f\n", best_s);
    return 0;
}
