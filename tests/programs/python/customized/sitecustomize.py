print("customized")
