import torch
model = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).cuda()
activations = []
def keep(module, args, output):
    activations.append(output.detach())
for m in model:
    if isinstance(m, torch.nn.Linear):
        m.register_forward_hook(keep)
opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for step in range(30):
    x = torch.randn(256, 784, device="cuda")
    y = torch.zeros(256, dtype=torch.long, device="cuda")
    loss = torch.nn.functional.cross_entropy(model(x), y)  # grows
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
