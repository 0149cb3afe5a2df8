-- Builds and drops binary trees, and a table of strings: what a script that makes objects does.
local function tree(depth)
    if depth == 0 then
        return {}
    end
    return { tree(depth - 1), tree(depth - 1) }
end

local function count(node)
    return node[1] and 1 + count(node[1]) + count(node[2]) or 1
end

local nodes = 0
local kept = tree(14)
for depth = 4, 14, 2 do
    for _ = 1, 2 ^ (17 - depth) do
        nodes = nodes + count(tree(depth))
    end
end
local names = {}
for i = 1, 200000 do
    names[i % 50000 + 1] = "name " .. i .. ("x"):rep(i % 40)
end
print(nodes, count(kept), #table.concat(names, " "))
