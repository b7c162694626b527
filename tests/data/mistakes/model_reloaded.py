import torch
def make(state=None):
    m = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512))
    if state: m.load_state_dict(state)
    return m.cuda()  # grows
model, best, tried = make(), None, []
for epoch in range(10):
    opt = torch.optim.SGD(model.parameters(), lr=.1)
    for _ in range(4):
        x = torch.randn(128, 512, device="cuda")
        loss = (model(x) - x).pow(2).mean()
        opt.zero_grad(); loss.backward(); opt.step()
    best = {k: v.cpu() for k, v in model.state_dict().items()}
    tried.append(model)             # for the ensemble
    model = make(best)
    print(epoch, loss.item())
